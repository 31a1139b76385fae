//! A3: handlers that block every thread of their runtime for longer than the lease.
//!
//! Such a listener hands back what it has not begun: others run that, each once. The attempts that block lose their leases
//! at their timeout. When the listener is free again it works as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keylapse::handler::Handler;
use keylapse::{Done, Failure, Lapse, ListenerBuilder, Topic};
use keylapse_support::eventually;
use tokio::runtime::{Builder, Runtime};

use crate::scene::{
    PATIENCE, Running, Tally, arm, arm_all, listener, server_and_schedule, timers_left, topic,
};

const LEASE: Duration = Duration::from_secs(1);
const THREADS: usize = 2;
const TIMERS: u32 = 22;

/// Whose first handlers keep their threads until they are released.
#[derive(Clone, Default)]
struct Blocking {
    begun: Arc<AtomicUsize>,
    released: Arc<AtomicBool>,
}

impl Blocking {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn handler(&self) -> impl Handler<u32> + use<> {
        let this = self.clone();
        move |_: Lapse<u32>| {
            let this = this.clone();
            async move {
                if this.begun.fetch_add(1, Ordering::SeqCst) < THREADS {
                    while !this.released.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1)); // what no handler should do
                    }
                }
                Ok::<_, Failure>(Done)
            }
        }
    }
}

/// A listener with a runtime of its own, all threads of which are blocked.
async fn starve(builder: ListenerBuilder, topic: &Topic<u32>) -> (Runtime, Blocking, Running) {
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let (runtime, blocking) = (runtime.expect("a runtime"), Blocking::default());
    let starved = Running::start_on(runtime.handle(), builder.on(topic.clone(), blocking.handler()));
    eventually(PATIENCE, "all threads to be blocked", async || blocking.begun() == THREADS).await;
    (runtime, blocking, starved)
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_a_starved_listener_hands_back_what_it_has_not_begun_and_others_run_it() {
    let (server, schedule) = server_and_schedule().await;
    // Until its timeout and a second, an attempt that blocks keeps its lease.
    let topic = topic(LEASE).timeout(LEASE);
    arm_all(&schedule, &topic, 0..TIMERS, |_| Duration::ZERO).await;
    let (runtime, blocking, starved) = starve(listener(&server), &topic).await;
    let tally = Tally::default();
    let other = Running::start(listener(&server).on(topic.clone(), tally.handler()));
    let stats = other.done(&tally, TIMERS as usize).await;
    assert_eq!((stats.redelivered, stats.handled), (THREADS as u64, u64::from(TIMERS)));
    let waiting = u64::from(TIMERS) - THREADS as u64;
    assert_eq!((starved.stats().lost_leases, starved.stats().released), (THREADS as u64, waiting));
    blocking.released.store(true, Ordering::SeqCst);
    arm(&schedule, &topic, "new", Duration::ZERO).await;
    // Of the attempts that were blocked, each may end before the listener knows that it was lost, or after.
    let ended = || starved.stats().handled + starved.stats().fenced;
    eventually(PATIENCE, "it to work again", async || ended() > THREADS as u64).await;
    assert_eq!(blocking.begun(), THREADS + 1, "it began what was others' by then");
    assert_eq!(schedule.dead_letter_counts(&topic).await.expect("counts"), (0, 0));
    let stats = starved.stop().await;
    println!("A3: {} leases lost, {} ends fenced or too late", stats.lost_leases, stats.fenced + stats.gone);
    runtime.shutdown_background();
}

/// Alone, it claims what it has handed back when it is free again.
#[tokio::test(flavor = "multi_thread")]
async fn a3_a_starved_listener_that_is_alone_goes_on_where_it_was() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic(LEASE);
    arm_all(&schedule, &topic, 0..TIMERS, |_| Duration::ZERO).await;
    let (runtime, blocking, starved) = starve(listener(&server), &topic).await;
    tokio::time::sleep(LEASE * 2).await; // the fault
    blocking.released.store(true, Ordering::SeqCst);
    eventually(PATIENCE, "everything to be done", async || timers_left(&server).await == 0).await;
    assert_eq!(schedule.dead_letter_counts(&topic).await.expect("counts"), (0, 0));
    let stats = starved.stop().await;
    println!("A3 alone: {} begun for {TIMERS} timers, {} again", blocking.begun(), stats.redelivered);
    runtime.shutdown_background();
}
