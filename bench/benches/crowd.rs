//! Several listeners of one topic, and many partitions: `cargo bench -p keylapse-bench --bench crowd [-- crowd|full|stream|partitions]`.
//!
//! Each listener has a thread and a runtime of its own. Lateness is that of the handlers' starts, by the system's clock. The
//! share of empty claims is that of all claims of a round. ROUNDS is the number of rounds (default 3), SECONDS the length of
//! each (default 3), RATE the only rate to measure. Compare only figures of one run.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::{Done, Failure, Key, Lapse, Listener, NewArm, Schedule, Topic};
use keylapse_support::{Direction, Proxy, Server};
use tokio::sync::oneshot;

fn main() {
    let asked: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        if wanted("crowd") {
            crowd().await;
        }
        if wanted("full") {
            full().await;
        }
        if wanted("stream") {
            stream().await;
        }
        if wanted("partitions") {
            partitions().await;
        }
    });
}

fn number(name: &str, unless: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(unless)
}

/// When a handler started, and how late.
type Started = (Instant, Duration);

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<(usize, usize)>,
}

/// Starts a listener on a thread of its own, which returns the number of claims and of empty claims.
fn listen(url: String, topic: &Topic<Bytes>, report: Sender<Started>) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let topic = topic.clone();
    let run = async move {
        let handler = move |lapse: Lapse<Bytes>| {
            let late = SystemTime::now().duration_since(lapse.deadline()).unwrap_or_default();
            let _ = report.send((Instant::now(), late));
            std::future::ready(Ok::<_, Failure>(Done))
        };
        let listener = Listener::builder(url).on(topic, handler).build().expect("a listener");
        let stats = listener.stats();
        listener.run_until(async { _ = stopped.await }).await.expect("a run");
        let total = stats.total();
        (total.claims as usize, total.empty_claims as usize)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Running { stop, thread: std::thread::spawn(move || runtime.block_on(run)) }
}

fn stop(crowd: Vec<Running>) -> (usize, usize) {
    let threads: Vec<_> = crowd
        .into_iter()
        .map(|one| {
            let _ = one.stop.send(());
            one.thread
        })
        .collect();
    let ended = threads.into_iter().map(|thread| thread.join().expect("an end"));
    ended.fold((0, 0), |sum, (claims, empty)| (sum.0 + claims, sum.1 + empty))
}

fn show(late: &mut [Duration]) -> String {
    late.sort();
    let ms = |share: f64| late[((late.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!("p50 {:>6.2} ms, p99 {:>6.2}, max {:>6.2}", ms(0.5), ms(0.99), ms(1.0))
}

fn arm(name: String, when: SystemTime) -> NewArm<Key<String>, Bytes> {
    NewArm::new(Key(name), when, Bytes::from_static(b"{}"))
}

async fn crowd() {
    let (rounds, seconds) = (number("ROUNDS", 3), number("SECONDS", 3));
    let server = Server::start().await;
    let schedule = Schedule::connect(&server.url()).await.expect("a schedule");
    let only = std::env::var("RATE").ok().and_then(|text| text.parse().ok());
    for rate in only.map_or_else(|| vec![10, 100, 1000], |rate| vec![rate]) {
        let topic: Topic<Bytes> = Topic::raw(&format!("crowd{rate}:{{id}}")).expect("a topic");
        for round in 0..rounds {
            for listeners in [1, 2, 4, 8] {
                let (report, reports) = channel();
                let running: Vec<_> =
                    (0..listeners).map(|_| listen(server.url(), &topic, report.clone())).collect();
                tokio::time::sleep(Duration::from_millis(300)).await;
                let count = (rate * seconds).max(30);
                let gap = Duration::from_secs(1) / u32::try_from(rate).expect("a rate");
                let (began, mut armed) = (Instant::now(), 0);
                // Timers are armed 200 to 800 ms ahead, spread by a fixed sequence. With a modulus of 600 instead of 601,
                // 120 timers would be due in one millisecond.
                while armed < count {
                    let name = format!("crowd{rate}:{round}-{listeners}-{armed}");
                    let ahead = Duration::from_millis(200 + (armed as u64 * 7919) % 601);
                    _ = schedule
                        .arm(&topic, Key(name), ahead, &Bytes::from_static(b"{}"))
                        .await
                        .expect("armed");
                    armed += 1;
                    tokio::time::sleep_until((began + gap * armed as u32).into()).await;
                }
                drop(report);
                tokio::time::sleep(Duration::from_millis(1200)).await;
                let (claims, empty) = stop(running);
                let mut late: Vec<_> = reports.iter().map(|(_, late)| late).collect();
                assert_eq!(late.len(), count);
                println!(
                    "crowd, {listeners} listeners, {rate:>4}/s, round {round}: {}, {claims} claims, {:.0} % empty",
                    show(&mut late),
                    empty as f64 * 100.0 / claims as f64
                );
            }
        }
    }
}

/// Handles a backlog as fast as the listeners can. Each listener takes 100 timers at a time.
async fn full() {
    const COUNT: usize = 100_000;
    for round in 0..number("ROUNDS", 3) {
        for listeners in [1, 8] {
            let server = Server::start().await;
            let schedule = Schedule::connect(&server.url()).await.expect("a schedule");
            let topic: Topic<Bytes> = Topic::raw("full:{id}").expect("a topic").marker_keys(false);
            let due = SystemTime::now() + Duration::from_secs(5);
            let armed = schedule.arm_many(&topic, (0..COUNT).map(|n| arm(format!("full:{n}"), due))).await;
            armed.expect("armed");
            let (report, reports) = channel();
            let running: Vec<_> =
                (0..listeners).map(|_| listen(server.url(), &topic, report.clone())).collect();
            drop(report);
            let took = tokio::task::block_in_place(|| {
                reports.iter().take(COUNT).map(|(_, late)| late).max().unwrap_or_default()
            });
            let (claims, empty) = stop(running);
            println!(
                "full, {listeners} listeners, round {round}: {:>7.0} handled/s, {claims} claims, {:.1} % empty",
                COUNT as f64 / took.as_secs_f64(),
                empty as f64 * 100.0 / claims as f64
            );
        }
    }
}

/// Arms overdue timers as fast as four producers can, while listeners handle them.
async fn stream() {
    for round in 0..number("ROUNDS", 3) {
        for listeners in [1, 2, 8] {
            let server = Server::start().await;
            let topic: Topic<Bytes> = Topic::raw("stream:{id}").expect("a topic").marker_keys(false);
            let (report, reports) = channel();
            let running: Vec<_> =
                (0..listeners).map(|_| listen(server.url(), &topic, report.clone())).collect();
            drop(report);
            tokio::time::sleep(Duration::from_millis(500)).await;
            let until = Instant::now() + Duration::from_secs(number("SECONDS", 3) as u64);
            let producers = (0..4).map(|producer| {
                let (url, topic) = (server.url(), topic.clone());
                tokio::spawn(async move {
                    let schedule = Schedule::connect(&url).await.expect("a schedule");
                    let mut armed = 0;
                    while Instant::now() < until {
                        let name =
                            |n| arm(format!("stream:{producer}-{}", armed + n), SystemTime::UNIX_EPOCH);
                        schedule.arm_many(&topic, (0..20).map(name)).await.expect("armed");
                        armed += 20;
                    }
                    armed
                })
            });
            let armed: usize = futures::future::join_all(producers)
                .await
                .into_iter()
                .map(|armed| armed.expect("an end"))
                .sum();
            let handled = tokio::task::block_in_place(|| reports.iter().take(armed).count());
            let (claims, empty) = stop(running);
            println!(
                "stream, {listeners} listeners, round {round}: {handled} handled, {:.0}/s until the last, {claims} claims, {:.1} % empty",
                handled as f64
                    / (until.elapsed() + Duration::from_secs(number("SECONDS", 3) as u64)).as_secs_f64(),
                empty as f64 * 100.0 / claims as f64
            );
        }
    }
}

/// Measures many partitions with a latency of 2.5 ms: overdue timers at the start, then 64 timers at a time.
async fn partitions() {
    for round in 0..number("ROUNDS", 3) {
        for partitions in [1, 64, 1024] {
            let server = Server::start().await;
            let proxy = Proxy::before(&server).await;
            let schedule = Schedule::connect(&server.url()).await.expect("a schedule");
            let topic: Topic<Bytes> = Topic::raw("many:{id}").expect("a topic").partitions(partitions);
            proxy.delay(Direction::Both, Duration::from_micros(1250));
            let past = SystemTime::now() - Duration::from_secs(1);
            let overdue = (0..2048).map(|n| arm(format!("many:overdue-{n}"), past));
            schedule.arm_many(&topic, overdue).await.expect("armed");
            let ((report, reports), began) = (channel(), Instant::now());
            let running = vec![listen(proxy.url(), &topic, report)];
            let run = tokio::task::block_in_place(|| {
                reports.iter().take(2048).map(|(at, _)| at - began).collect::<Vec<_>>()
            });
            let (first, last) = (run.iter().min().expect("one"), run.iter().max().expect("one"));
            let start = SystemTime::now() + Duration::from_millis(500);
            let moments =
                (0..30 * 64).map(|n| arm(format!("many:{n}"), start + Duration::from_millis(100) * (n / 64)));
            schedule.arm_many(&topic, moments).await.expect("armed");
            tokio::time::sleep(Duration::from_millis(4200)).await;
            let (claims, empty) = stop(running);
            let mut late: Vec<_> = reports.iter().map(|(_, late)| late).collect();
            println!(
                "partitions, {partitions:>4}, round {round}: first overdue after {first:.2?}, last {last:.2?}; {}, \
                 {claims} claims, {:.0} % empty, {} timers",
                show(&mut late),
                empty as f64 * 100.0 / claims as f64,
                late.len()
            );
        }
    }
}
