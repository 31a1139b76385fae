//! Measures what a journal and a tail cost the server: `cargo bench -p keylapse-bench --bench journal`.
//!
//! Timers are armed and handled with neither, with each and with both, in turn, and the processor time of one server is
//! compared. Absolute figures depend on the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Done, Failure, Key, Lapse, Listener, NewArm, Schedule, Topic};
use keylapse_console::{Console, Tail};
use keylapse_support::Server;
use redis::from_redis_value;
use tokio::sync::{mpsc, oneshot};

const ROUNDS: usize = 9;
const TIMERS: usize = 20_000;
const PAYLOAD: &[u8] = &[b'x'; 100];
/// The modes: a name, with a journal, with a tail.
const MODES: [(&str, bool, bool); 4] =
    [("neither", false, false), ("journal", true, false), ("tail", false, true), ("both", true, true)];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = Server::start().await;
        let mut found = [const { Vec::new() }; MODES.len()];
        for _ in 0..ROUNDS {
            for (at, (_, journal, watched)) in MODES.into_iter().enumerate() {
                found[at].push(round(&server, journal, watched).await);
            }
        }
        println!("{} on {ROUNDS} rounds of {TIMERS} timers, payloads of 100 bytes", server.version());
        let first = median(&mut found[0]);
        for ((name, ..), all) in MODES.into_iter().zip(&mut found) {
            let (middle, least, greatest) = (median(all), all[0], all[all.len() - 1]);
            println!(
                "{name:<10} {middle:>6.1} µs of the server a timer ({least:.1} to {greatest:.1}), ×{:.2}",
                middle / first
            );
        }
    });
}

/// Returns the processor time of the server for each timer, armed and handled, in µs.
async fn round(server: &Server, journal: bool, watched: bool) -> f64 {
    server.cmd(&["FLUSHALL"]).await;
    let kept = if journal { TIMERS as u64 } else { 0 };
    let topic =
        Topic::<Bytes>::raw("app:trans:notice:{id}").expect("a topic").marker_keys(false).concurrency(1000);
    let topic = topic.journal(kept, Duration::from_secs(3600));
    let schedule = Schedule::connect(&server.plain_url()).await.expect("a schedule");
    schedule.pause(&topic, "bench").await.expect("paused");
    let tail = if watched { Some(start_tail(server).await) } else { None };
    let before = used(server).await;
    let arms = (0..TIMERS).map(|n| {
        let key = Key(format!("app:trans:notice:{n:011}"));
        NewArm::new(key, Duration::ZERO, Bytes::from_static(PAYLOAD))
    });
    let armed = schedule.arm_many(&topic, arms).for_each(|_, armed| assert!(armed.is_ok())).await;
    assert_eq!(armed.expect("armed"), TIMERS);
    handle_all(server, &schedule, &topic).await;
    let took = used(server).await - before;
    drop(tail);
    took * 1e6 / TIMERS as f64
}

/// Starts a tail that reads all events.
async fn start_tail(server: &Server) -> tokio::task::JoinSet<()> {
    let console = Console::connect(&server.plain_url()).await.expect("a console");
    let mut tail: Tail = console.tail(&["app.trans.notice"]).await.expect("a tail");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { while tail.next().await.is_some() {} });
    tasks
}

async fn handle_all(server: &Server, schedule: &Schedule, topic: &Topic<Bytes>) {
    let (handled, (done, mut all)) = (Arc::new(AtomicUsize::new(0)), mpsc::unbounded_channel());
    let handler = move |_: Lapse<Bytes>| {
        if handled.fetch_add(1, Ordering::Relaxed) + 1 == TIMERS {
            let _ = done.send(());
        }
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let builder = Listener::builder(server.plain_url()).concurrency(1000).on(topic.clone(), handler);
    let listener = builder.build().expect("a listener");
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move { listener.run_until(stopped).await.expect("a run") });
    schedule.resume(topic).await.expect("resumed");
    all.recv().await;
    let _ = stop.send(());
    let _ = task.await;
}

/// Returns the processor time that the server has used, in seconds.
async fn used(server: &Server) -> f64 {
    let info: String = from_redis_value(server.cmd(&["INFO", "cpu"]).await).expect("what it has used");
    let figure = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|figure| figure.parse::<f64>().ok()).expect("a figure")
    };
    figure("used_cpu_sys_main_thread") + figure("used_cpu_user_main_thread")
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
