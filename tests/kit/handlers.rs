//! What may be a handler, and what it may return.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use keylapse::dead_letters::DeadReason;
use keylapse::handler::{FailureError, Handler, State};
use keylapse::{Attached, Done, Expired, Failure, Lapse, Listener, ListenerBuilder, Outcome};
use keylapse_testing::{RunEnd, TestBed};

use crate::kit::support::{arm, bed_with_one, reminders, secs, succeed};

type Boxed = Box<dyn Error + Send + Sync>;
type Counter = Arc<AtomicUsize>;

/// How the first attempt ended, and why its timer is among the dead letters, if it is.
async fn first_end(handler: impl Handler<String>) -> (RunEnd, Option<DeadReason>) {
    let bed = bed_with_one(handler, secs(1)).await;
    bed.advance(secs(2)).await;
    let letters = bed.schedule().dead_letters(&reminders()).page(1).await.expect("memory does not fail");
    let end = bed.all_runs()[0].end.clone().expect("it has ended");
    (end, letters.first().map(|letter| letter.reason))
}

fn failed(text: &str) -> (RunEnd, Option<DeadReason>) {
    (RunEnd::Failed(text.to_owned()), None)
}

fn buried(text: &str) -> (RunEnd, Option<DeadReason>) {
    (RunEnd::Failed(text.to_owned()), Some(DeadReason::Permanent))
}

#[tokio::test(start_paused = true)]
async fn a_handler_returns_any_error() {
    async fn of_io(_: Lapse<String>) -> io::Result<Done> {
        Err(io::Error::other("busy"))
    }
    async fn text(_: Lapse<String>) -> Result<(), String> {
        Err("busy".to_owned())
    }
    async fn literal(_: Lapse<String>) -> Result<Outcome, &'static str> {
        Err("busy")
    }
    async fn boxed(_: Lapse<String>) -> Result<Done, Boxed> {
        Err("busy".into())
    }
    async fn of_anyhow(_: Lapse<String>) -> anyhow::Result<Done> {
        Err(io::Error::other("busy")).context("asking")
    }
    async fn failure(_: Lapse<String>) -> Result<Done, Failure> {
        Err(anyhow::anyhow!("busy").context("asking"))?
    }
    assert_eq!(first_end(of_io).await, failed("busy"));
    assert_eq!(first_end(text).await, failed("busy"));
    assert_eq!(first_end(literal).await, failed("busy"));
    assert_eq!(first_end(boxed).await, failed("busy"));
    assert_eq!(first_end(of_anyhow).await, failed("asking: busy"));
    assert_eq!(first_end(failure).await, failed("asking: busy"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_inside_an_error_is_what_is_done() {
    fn closed() -> FailureError {
        Failure::dead("closed").into_error()
    }
    async fn top(_: Lapse<String>) -> Result<Done, FailureError> {
        Err(closed())
    }
    async fn of_io(_: Lapse<String>) -> io::Result<Done> {
        Err(io::Error::other(closed()))
    }
    async fn boxed(_: Lapse<String>) -> Result<Done, Boxed> {
        Err(closed())?
    }
    async fn of_anyhow(_: Lapse<String>) -> anyhow::Result<Done> {
        Err(closed())?
    }
    async fn under_context(_: Lapse<String>) -> anyhow::Result<Done> {
        Err(closed()).context("asking").context("paying")
    }
    assert_eq!(first_end(top).await, buried("closed"));
    assert_eq!(first_end(of_io).await, buried("closed"));
    assert_eq!(first_end(boxed).await, buried("closed"));
    assert_eq!(first_end(of_anyhow).await, buried("closed"));
    assert_eq!(first_end(under_context).await, buried("paying: asking: closed"));
}

/// A handler by hand, for any payload.
struct ByHand<P>(P);

impl<T: Send + 'static, P: Send + Sync + 'static> Handler<T> for ByHand<P> {
    async fn call(&self, _: Lapse<T>) -> Result<Outcome, Failure> {
        Ok(Outcome::Drop)
    }
}

async fn count(lapse: Lapse<String>, counter: Counter) -> anyhow::Result<Done> {
    anyhow::ensure!(lapse.payload() == "hello", "another payload");
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(Done)
}

#[tokio::test(start_paused = true)]
async fn handlers_share_a_state_or_do_without() {
    let (bed, counter) = (TestBed::new(), Counter::default());
    let topic = |name| keylapse::Topic::named(name, &format!("{name}:{{id}}")).expect("the pattern is fine");
    let topics: Vec<_> = ["a", "b", "c", "d", "e"].map(topic).into();
    bed.listen(|listener| -> ListenerBuilder<State<Counter>> {
        listener
            .on(topics[0].clone(), succeed) // nothing is shared yet
            .state(counter.clone())
            .on(topics[1].clone(), count)
            .on(topics[2].clone(), async |_: Lapse<String>, counter: Counter| {
                counter.fetch_add(10, Ordering::Relaxed);
                Ok::<_, String>(())
            })
            .on(topics[3].clone(), succeed)
            .on(topics[4].clone(), ByHand(()))
    })
    .await
    .unwrap();
    for topic in &topics {
        let armed = bed.schedule().arm(topic, 42, secs(1), &"hello".to_owned()).await;
        assert!(armed.unwrap().is_armed());
    }
    bed.until_finished().await;
    assert_eq!((counter.load(Ordering::Relaxed), bed.all_runs().len()), (11, 5));
    assert_eq!(bed.runs(&topics[4])[0].end, Some(RunEnd::Returned(Outcome::Drop)));
}

#[test]
fn handlers_of_attached_topics_share_it_too() {
    async fn with(_: Lapse<Expired<String>>, _: Counter) -> io::Result<()> {
        Ok(())
    }
    async fn without(_: Lapse<Expired<String>>) -> io::Result<()> {
        Ok(())
    }
    let cart = keylapse::Topic::<String>::new("cart:{id}").unwrap();
    let listener = Listener::builder("redis://127.0.0.1/")
        .state(Counter::default())
        .attach(Attached::new(cart).keep_values(64), with)
        .attach(reminders(), without);
    listener.build().unwrap();
}

/// Closures need no types where they only pass on what they get.
#[tokio::test(start_paused = true)]
async fn a_closure_needs_no_types() {
    let counter = Counter::default();
    let counting = counter.clone();
    let bed = TestBed::new();
    bed.listen(|listener| listener.on(reminders(), move |lapse| count(lapse, counting.clone())))
        .await
        .unwrap();
    arm(&bed, "a", secs(1)).await;
    bed.until_finished().await;
    assert_eq!(counter.load(Ordering::Relaxed), 1);
}
