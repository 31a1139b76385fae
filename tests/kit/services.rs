//! Services of `tower` as handlers: its layers apply.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use keylapse::dead_letters::DeadReason;
use keylapse::handler::FailureError;
use keylapse::tower::ServiceHandler;
use keylapse::{Done, Failure, Lapse, Outcome};
use keylapse_testing::{RunEnd, TestBed};
use tower::util::BoxCloneService;
use tower::{Service, ServiceBuilder, service_fn};

use crate::kit::support::{arm, bed_with_one, listen, ms, reminders, secs};

#[tokio::test(start_paused = true)]
async fn a_timeout_layer_fails_an_attempt() {
    let slow = service_fn(|_: Lapse<String>| async {
        tokio::time::sleep(secs(10)).await;
        Ok::<_, FailureError>(Done)
    });
    let bed =
        bed_with_one(ServiceHandler::new(ServiceBuilder::new().timeout(secs(3)).service(slow)), secs(1))
            .await;
    bed.advance(secs(5)).await;
    let run = &bed.all_runs()[0];
    assert_eq!((run.began, run.ended), (secs(1), Some(secs(4))));
    assert_eq!(run.end, Some(RunEnd::Failed("request timed out".into())));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_found_through_a_layer_that_boxes_errors() {
    let closed =
        service_fn(|_: Lapse<String>| async { Err::<Done, _>(Failure::dead("closed").into_error()) });
    let bed =
        bed_with_one(ServiceHandler::new(ServiceBuilder::new().timeout(secs(3)).service(closed)), secs(1))
            .await;
    bed.until_finished().await;
    let letters = bed.schedule().dead_letters(&reminders()).page(10).await.unwrap();
    assert_eq!((letters[0].reason, letters[0].last_error()), (DeadReason::Permanent, Some("closed")));
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_holds_attempts_back() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = {
        let most = most.clone();
        service_fn(move |_: Lapse<String>| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(secs(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, FailureError>(())
            }
        })
    };
    // A boxed service can be sent between threads, and not shared.
    let limited = BoxCloneService::new(ServiceBuilder::new().concurrency_limit(2).service(work));
    let bed = TestBed::new();
    listen(&bed, ServiceHandler::new(limited)).await;
    for id in ["a", "b", "c", "d", "e"] {
        arm(&bed, id, secs(1)).await;
    }
    bed.until_finished().await;
    assert_eq!((most.load(Ordering::SeqCst), bed.all_runs().len()), (2, 5));
    let last = bed.all_runs().iter().filter_map(|run| run.ended).max();
    assert_eq!(last, Some(secs(4)), "two, two and one");
}

/// Ready after a while; each clone anew, as `Service` asks for. A call before that panics.
#[derive(Default)]
struct Slow(Option<std::pin::Pin<Box<tokio::time::Sleep>>>, bool);

impl Clone for Slow {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Lapse<String>> for Slow {
    type Response = Outcome;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Outcome, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let waits = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(250))));
        std::task::ready!(waits.as_mut().poll(context));
        self.1 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Lapse<String>) -> Self::Future {
        assert!(self.1, "called before it was ready");
        std::future::ready(Ok(Outcome::Done))
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_not_called_before_it_is_ready() {
    let bed = bed_with_one(ServiceHandler::new(Slow::default()), secs(1)).await;
    bed.until_finished().await;
    let run = &bed.all_runs()[0];
    assert_eq!(
        (run.end.clone(), run.ended),
        (Some(RunEnd::Returned(Outcome::Done)), Some(secs(1) + ms(250)))
    );
}
