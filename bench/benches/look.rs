//! A first look at speed: `cargo bench -p keylapse-bench --bench look`.
//!
//! Starts its own server, and prints a table. Absolute figures depend on the machine. Compare only figures of one run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::{Done, Failure, Key, Lapse, Listener, NewArm, Schedule, Topic};
use keylapse_support::{Proxy, Server};
use rand::seq::SliceRandom;
use tokio::sync::{mpsc, oneshot};

const PAYLOAD: &[u8] = br#"{"merchant":"m-000000017","order":"o-0000000000042","amount":1234567890}"#;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        idle().await;
        memory().await;
        for marker_keys in [false, true] {
            throughput(marker_keys).await;
        }
        // 1,000 timers over 10 s, without and with foreign keys in turn.
        for foreign in [0, 300_000, 0, 300_000, 0, 300_000] {
            lateness(100, 1000, foreign).await;
        }
        for (per_second, count) in [(10, 200), (1000, 5000), (10_000, 50_000)] {
            lateness(per_second, count, 0).await;
        }
    });
}

fn topic(marker_keys: bool) -> Topic<Bytes> {
    Topic::raw("app:trans:notice:{id}").expect("a topic").marker_keys(marker_keys).concurrency(1000)
}

fn arms(count: usize, when: impl Fn(usize) -> SystemTime) -> Vec<NewArm<Key<String>, Bytes>> {
    let mut numbers: Vec<_> = (0..count).collect();
    numbers.shuffle(&mut rand::rng());
    let arm = |n| NewArm::new(Key(format!("app:trans:notice:{n:011}")), when(n), Bytes::from_static(PAYLOAD));
    numbers.into_iter().map(arm).collect()
}

struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

fn listen<F>(url: String, topic: &Topic<Bytes>, handle: F) -> Running
where
    F: Fn(Lapse<Bytes>) + Clone + Send + Sync + 'static,
{
    let handler = move |lapse: Lapse<Bytes>| {
        handle(lapse);
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let listener =
        Listener::builder(url).concurrency(1000).on(topic.clone(), handler).build().expect("a listener");
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        listener.run_until(shutdown).await.expect("a run");
    });
    Running { stop, task }
}

async fn throughput(marker_keys: bool) {
    const COUNT: usize = 200_000;
    let server = Server::start().await;
    let (topic, schedule) = (topic(marker_keys), Schedule::connect(&server.url()).await.expect("a schedule"));
    schedule.pause(&topic, "bench").await.expect("paused");
    let started = Instant::now();
    let now = SystemTime::now() - Duration::from_secs(1);
    schedule.arm_many(&topic, arms(COUNT, |_| now)).await.expect("armed");
    let arming = started.elapsed();
    let (handled, (done, mut all)) = (Arc::new(AtomicUsize::new(0)), mpsc::unbounded_channel());
    let running = listen(server.url(), &topic, move |_| {
        if handled.fetch_add(1, Ordering::Relaxed) + 1 == COUNT {
            let _ = done.send(());
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    schedule.resume(&topic).await.expect("resumed");
    all.recv().await;
    let rate = COUNT as f64 / started.elapsed().as_secs_f64();
    println!(
        "throughput, marker_keys {marker_keys}: {rate:.0} handled/s, {:.0} armed/s",
        COUNT as f64 / arming.as_secs_f64()
    );
    let _ = running.stop.send(());
    let _ = running.task.await;
}

async fn lateness(per_second: usize, count: usize, foreign: usize) {
    let server = Server::start().await;
    if foreign > 0 {
        let script =
            "for i = 1, ARGV[1] do redis.call('SET', 'foreign:' .. i, '', 'EX', 3600 + i % 1000) end";
        server.cmd(&["EVAL", script, "0", &foreign.to_string()]).await;
    }
    let (topic, schedule) = (topic(true), Schedule::connect(&server.url()).await.expect("a schedule"));
    let (report, mut reports) = mpsc::unbounded_channel();
    let running = listen(server.url(), &topic, move |lapse| {
        let _ =
            report.send(SystemTime::now().duration_since(lapse.deadline()).map_err(|early| early.duration()));
    });
    let first = SystemTime::now() + Duration::from_secs(2);
    let gap = Duration::from_secs(1) / u32::try_from(per_second).expect("a rate");
    schedule.arm_many(&topic, arms(count, |n| first + gap * n as u32)).await.expect("armed");
    let (mut late, mut early) = (Vec::new(), 0);
    for _ in 0..count {
        match reports.recv().await.expect("a report") {
            Ok(lateness) => late.push(lateness),
            Err(_) => early += 1,
        }
    }
    late.sort();
    let ms = |share: f64| late[((late.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "lateness, {per_second}/s, {foreign} foreign: p50 {:.2} ms, p99 {:.2}, max {:.2}, early {early}",
        ms(0.5),
        ms(0.99),
        ms(1.0)
    );
    let _ = running.stop.send(());
    let _ = running.task.await;
}

async fn memory() {
    const COUNT: usize = 200_000;
    for marker_keys in [false, true] {
        let server = Server::start().await;
        let (topic, schedule) =
            (topic(marker_keys), Schedule::connect(&server.url()).await.expect("a schedule"));
        let before = used(&server).await;
        let later = SystemTime::now() + Duration::from_secs(86_400);
        schedule
            .arm_many(&topic, arms(COUNT, |n| later + Duration::from_millis(n as u64)))
            .await
            .expect("armed");
        println!(
            "memory, marker_keys {marker_keys}: {} bytes per timer",
            (used(&server).await - before) / COUNT
        );
    }
}

async fn used(server: &Server) -> usize {
    let info: redis::Value = server.cmd(&["INFO", "memory"]).await;
    let text: String = redis::from_redis_value(info).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("used_memory");
    line.parse().expect("a number")
}

async fn idle() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let running = listen(proxy.url(), &topic(true), |_| {});
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.reset_counts();
    tokio::time::sleep(Duration::from_secs(20)).await;
    println!("idle: {:.2} requests/s {:?}", proxy.batches() as f64 / 20.0, proxy.requests());
    let _ = running.stop.send(());
    let _ = running.task.await;
}
