//! Handlers whose runtime polls nothing: their listener leaves timers to others, and costs none of them a lease.

use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use keylapse::handler::Handler;
use keylapse::{Done, ErrorKind, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::{Server, eventually};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::server::support::{
    PATIENCE, Reports, Running, arm, listener, refusal, reporting, server_and_schedule,
};

/// A runtime for handlers, driven by threads of its own until it is dropped.
struct Handlers {
    handle: Handle,
    threads: usize,
    stop: Option<oneshot::Sender<()>>,
}

impl Handlers {
    /// On one thread, or on several.
    fn on_threads(threads: usize) -> Self {
        let runtime = match threads {
            1 => Builder::new_current_thread().enable_all().build(),
            several => Builder::new_multi_thread().worker_threads(several).enable_all().build(),
        };
        let runtime = runtime.expect("a runtime");
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        std::thread::spawn(move || {
            let _ = runtime.block_on(stopped);
            Runtime::shutdown_background(runtime);
        });
        Self { handle, threads, stop: Some(stop) }
    }

    /// Has it poll nothing until that is dropped.
    async fn stand_still(&self) -> Vec<mpsc::Sender<()>> {
        let (blocked, mut blocks) = tokio::sync::mpsc::unbounded_channel();
        let block = |_| {
            let ((wake, woken), blocked) = (mpsc::channel(), blocked.clone());
            self.handle.spawn(async move {
                blocked.send(()).ok();
                woken.recv().ok();
            });
            wake
        };
        let blocking = (0..self.threads).map(block).collect();
        for _ in 0..self.threads {
            blocks.recv().await.expect("a thread of the runtime");
        }
        blocking
    }
}

/// How one attempt began.
#[derive(Debug)]
struct Began {
    number: u32,
    late: Duration,
    attempt: u32,
    redelivered: bool,
}

fn beginning() -> (impl Handler<u32>, Reports<Began>) {
    reporting(|lapse: Lapse<u32>| {
        let (number, attempt, redelivered) = (*lapse.payload(), lapse.attempt(), lapse.is_redelivered());
        let late = SystemTime::now().duration_since(lapse.deadline()).unwrap_or_default();
        (Began { number, late, attempt, redelivered }, Ok::<_, Failure>(Done))
    })
}

async fn arm_number(schedule: &Schedule, topic: &Topic<u32>, number: u32, delay: Duration) {
    arm(schedule, topic, &number.to_string(), delay, number).await;
}

const EVERY: Duration = Duration::from_millis(500);
const TIMERS: u32 = 12;

/// A listener whose handlers have a runtime of their own.
struct Side {
    handlers: Handlers,
    running: Running,
    began: Reports<Began>,
}

impl Side {
    async fn start(server: &Server, topic: &Topic<u32>, threads: usize) -> Self {
        let (handlers, (handler, began)) = (Handlers::on_threads(threads), beginning());
        let builder = listener(server).on(topic.clone(), handler).handlers_on(handlers.handle.clone());
        let running = Running::start(builder);
        running.until_anchored().await;
        Self { handlers, running, began }
    }
}

/// The one of two listeners that claims stands still: with the only thread of its runtime blocked, or with both.
#[tokio::test(flavor = "multi_thread")]
async fn timers_of_a_listener_whose_runtime_polls_nothing_run_on_another_within_a_second() {
    for threads in [1, 2] {
        let (server, schedule) = server_and_schedule().await;
        let topic = Topic::<u32>::new("app:still:{id}").unwrap().lease(Duration::from_secs(3));
        let (mut one, mut other) =
            (Side::start(&server, &topic, threads).await, Side::start(&server, &topic, threads).await);
        arm_number(&schedule, &topic, 0, EVERY).await;
        let first_leads = tokio::select! {
            _ = one.began.next() => true,
            _ = other.began.next() => false,
        };
        let (mut stands, mut runs) = if first_leads { (one, other) } else { (other, one) };
        let still = stands.handlers.stand_still().await;
        for number in 1..=TIMERS {
            arm_number(&schedule, &topic, number, EVERY * number).await;
        }
        let mut began = Vec::new();
        for _ in 0..TIMERS {
            began.push(runs.began.next().await);
        }
        assert!(began.iter().all(|one| one.late < Duration::from_secs(1)), "{began:?}");
        assert!(began.iter().all(|one| one.attempt == 1 && !one.redelivered), "{began:?}");
        assert!(stands.running.health.handlers_stalled().is_some());
        drop(still);
        let polls = async || stands.running.health.handlers_stalled().is_none();
        eventually(PATIENCE, "it to poll again", polls).await;
        let total = stands.running.stats.total();
        assert!(total.released > 0, "what it had claimed");
        assert_eq!((total.lost_leases, total.fenced, total.gone, total.dead), (0, 0, 0, 0));
        assert!(stands.began.try_next().is_none(), "late polls begin nothing");
        stands.running.stop().await.unwrap();
        runs.running.stop().await.unwrap();
    }
}

/// Nobody else is there: the timers wait, for much longer than leases and timeouts last, and then run.
#[tokio::test(flavor = "multi_thread")]
async fn timers_of_a_lone_listener_whose_runtime_polls_nothing_wait_for_it() {
    let (server, schedule) = server_and_schedule().await;
    let short = Duration::from_millis(300);
    let topic = Topic::<u32>::new("app:alone:{id}").unwrap().lease(short).timeout(short);
    let handlers = Handlers::on_threads(1);
    let (handler, mut began) = beginning();
    let alone =
        Running::start(listener(&server).on(topic.clone(), handler).handlers_on(handlers.handle.clone()));
    let still = handlers.stand_still().await;
    for number in 1..=TIMERS {
        arm_number(&schedule, &topic, number, EVERY / 5 * number).await;
    }
    alone.until("they are handed back", |stats| stats.total().released > 0).await;
    let claimed = alone.stats.total().claimed;
    tokio::time::sleep(short * 10).await; // the fault
    assert_eq!(alone.stats.total().claimed, claimed, "nothing is claimed meanwhile");
    drop(still);
    let mut numbers = Vec::new();
    for _ in 0..TIMERS {
        let one = began.next().await;
        assert!(one.attempt == 1 && !one.redelivered, "{one:?}");
        numbers.push(one.number);
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=TIMERS), "each once");
    alone.until("it polls again", |stats| stats.total().handled == u64::from(TIMERS)).await;
    assert_eq!(alone.health.handlers_stalled(), None);
    let total = alone.stats.total();
    assert_eq!((total.lost_leases, total.dead), (0, 0));
    alone.stop().await.unwrap();
}

/// Its handlers' runtime is shut down: what was given to it and was never polled is handed back at once.
#[tokio::test(flavor = "multi_thread")]
async fn timers_that_a_runtime_has_not_polled_when_it_is_shut_down_are_handed_back() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:shut:{id}").unwrap();
    let mut handlers = Handlers::on_threads(1);
    let (handler, mut first) = beginning();
    let ends =
        Running::start(listener(&server).on(topic.clone(), handler).handlers_on(handlers.handle.clone()));
    ends.until_anchored().await;
    let still = handlers.stand_still().await;
    for number in 0..TIMERS {
        arm_number(&schedule, &topic, number, Duration::ZERO).await;
    }
    ends.until("they are claimed", |stats| stats.total().claimed > 0).await;
    drop(handlers.stop.take());
    drop(still);
    assert_eq!(ends.ended().await.expect_err("it stops").kind(), ErrorKind::Internal);
    let begun_before = std::iter::from_fn(|| first.try_next()).count();
    let (handler, mut others) = beginning();
    let runs = Running::start(listener(&server).on(topic.clone(), handler));
    for _ in begun_before..TIMERS as usize {
        let one = others.next().await;
        assert!(one.attempt == 1 && !one.redelivered, "{one:?}");
    }
    runs.stop().await.unwrap();
}

/// Each attempt has a timeout, and one that could have none would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_timers_is_refused_for_handlers() {
    let (server, _) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:timeless:{id}").unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().expect("a runtime");
    let error =
        refusal(listener(&server).on(topic, beginning().0).handlers_on(runtime.handle().clone())).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("enable_time"), "{error}");
    runtime.shutdown_background();
}

#[test]
fn a_listener_that_no_runtime_awaits_says_so() {
    let topic = Topic::<u32>::new("app:nowhere:{id}").unwrap();
    let listener = Listener::builder("redis://127.0.0.1:1/").on(topic, beginning().0).build().unwrap();
    let ended = listener.run_until(std::future::ready(())).now_or_never().expect("it ends at once");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Invalid);
}
