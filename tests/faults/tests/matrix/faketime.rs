//! C14, with the server's own clock moved under it by libfaketime, and a client's clock that is wrong.
//! Skipped, with the reason, where libfaketime or a server that can live with it is missing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::handler::Handler;
use keylapse::{Done, Failure, Lapse, Schedule, Topic};
use keylapse_faults::job::Work;
use keylapse_support::{Binary, Server, eventually, skipped};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::process::{self, Process, starts};
use crate::scene::{PATIENCE, Running, Tally, arm, arm_all, counting, listener, topic};

/// Where Debian's package `faketime` leaves it; `KEYLAPSE_FAKETIME` names another.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const LEASE: Duration = Duration::from_secs(2);
const HOUR: i64 = 3600;
/// How close the server's clock must be to what it was set to; the question takes a while on a busy machine.
const NOTICED_MS: u64 = 200;

/// None, and the reason printed, where it cannot be had.
fn library() -> Option<String> {
    let path = std::env::var("KEYLAPSE_FAKETIME").unwrap_or_else(|_| LIBRARY.into());
    let is_there = Path::new(&path).is_file();
    if !is_there {
        skipped(&format!("{LIBRARY} is missing (apt-get install faketime)"));
    }
    is_there.then_some(path)
}

/// A server whose clock is the machine's and so many milliseconds.
struct Clocked {
    server: Server,
    schedule: Schedule,
    folder: TempDir,
    ahead_ms: Arc<AtomicI64>,
}

impl Clocked {
    /// None, and the reason printed, where it cannot be had.
    async fn start() -> Option<Self> {
        let library = library()?;
        let folder = tempfile::tempdir().expect("a folder");
        let Some(binary) = tolerant_binary().await else {
            skipped("no server here uses libc's malloc; name one in KEYLAPSE_SERVERS");
            return None;
        };
        write_offset(folder.path(), 0);
        let file = folder.path().join("offset").display().to_string();
        let server = Server::builder()
            .binary(binary)
            .env("LD_PRELOAD", &library)
            .env("FAKETIME_TIMESTAMP_FILE", &file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .start()
            .await;
        let schedule = Schedule::connect(&server.app_url()).await.expect("a schedule");
        Some(Self { server, schedule, folder, ahead_ms: Arc::default() })
    }

    /// Moves the clock to so far ahead of the machine's, and waits until the server has noticed.
    async fn set_ahead(&self, ms: i64) {
        // The later of the two while it changes: who starts by the server's clock is never early by this one.
        self.ahead_ms.fetch_max(ms, Ordering::SeqCst);
        write_offset(self.folder.path(), ms);
        let has_noticed = async || {
            let ahead = self.server_ms().await - now_ms();
            ahead.abs_diff(ms) < NOTICED_MS
        };
        eventually(PATIENCE, "the server to see another time", has_noticed).await;
        self.ahead_ms.store(ms, Ordering::SeqCst);
    }

    async fn server_ms(&self) -> i64 {
        let time: [String; 2] = redis::from_redis_value(self.server.cmd(&["TIME"]).await).expect("a time");
        let [secs, micros] = time.map(|part| part.parse::<i64>().expect("a number"));
        secs * 1000 + micros / 1000
    }

    /// A listener that hears, with the handler of this test.
    async fn listening(&self) -> (Topic<u32>, Tally, Arc<Semaphore>, Running) {
        let (topic, tally, gate) = (topic(LEASE), Tally::default(), Arc::new(Semaphore::new(0)));
        let running = Running::start(listener(&self.server).on(topic.clone(), self.handler(&tally, &gate)));
        running.anchored().await;
        (topic, tally, gate, running)
    }

    /// A handler that counts, fails the test if it starts early, and holds "held" until it may end.
    fn handler(&self, tally: &Tally, gate: &Arc<Semaphore>) -> impl Handler<u32> + use<> {
        let (tally, gate, ahead) = (tally.clone(), gate.clone(), self.ahead_ms.clone());
        move |lapse: Lapse<u32>| {
            let now = now_ms() + ahead.load(Ordering::SeqCst);
            let deadline = ms(lapse.deadline());
            let (tally, gate) = (tally.clone(), gate.clone());
            async move {
                assert!(now >= deadline, "{} ms early", deadline - now);
                tally.note(&lapse);
                if lapse.capture("id") == Some("held") {
                    let _ = gate.acquire().await;
                }
                Ok::<_, Failure>(Done)
            }
        }
    }
}

fn now_ms() -> i64 {
    ms(SystemTime::now())
}

fn ms(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Renamed into place: the server reads it at each look at the clock.
fn write_offset(folder: &Path, ms: i64) {
    let (new, file) = (folder.join("new"), folder.join("offset"));
    std::fs::write(&new, format!("{}{:.3}\n", if ms < 0 { "" } else { "+" }, ms as f64 / 1000.0))
        .expect("a file");
    std::fs::rename(new, file).expect("a file");
}

/// libfaketime and jemalloc wait for each other.
async fn tolerant_binary() -> Option<Binary> {
    for binary in Binary::all().expect("servers") {
        let server = Server::builder().binary(binary.clone()).start().await;
        let memory: String =
            redis::from_redis_value(server.cmd(&["INFO", "memory"]).await).expect("information");
        if memory.contains("mem_allocator:libc") {
            return Some(binary);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_a_step_of_two_hours_forward_runs_what_is_due_by_then_and_nothing_else() {
    let Some(clocked) = Clocked::start().await else { return };
    let (topic, tally, gate, running) = clocked.listening().await;
    for (id, hours) in [("held", 0), ("one", 1), ("three", 3)] {
        arm(&clocked.schedule, &topic, id, Duration::from_secs(hours * 3600)).await;
    }
    tally.until(1).await;
    clocked.set_ahead(2 * HOUR * 1000).await;
    tally.until(2).await;
    arm(&clocked.schedule, &topic, "new", Duration::from_millis(200)).await;
    tally.until(3).await;
    gate.add_permits(100);
    let gone = async |id: &str| clocked.schedule.look_up(&topic, [id]).await.expect("a look").is_none();
    eventually(PATIENCE, "the held one to end", async || gone("held").await).await;
    assert!(!gone("three").await && tally.runs_of("three") == 0);
    let stats = running.stop().await;
    println!("C14 +2 h: held ran {} times, {} leases lost", tally.runs_of("held"), stats.lost_leases);
    assert_eq!((tally.runs_of("one"), tally.runs_of("new"), stats.panics), (1, 1, 0));
    assert!(tally.runs_of("held") <= 2, "again at most once: its lease was over by the clock");
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_a_step_of_an_hour_back_delays_what_waits_and_loses_nothing() {
    let Some(clocked) = Clocked::start().await else { return };
    let (topic, tally, gate, running) = clocked.listening().await;
    arm(&clocked.schedule, &topic, "held", Duration::ZERO).await;
    tally.until(1).await;
    arm(&clocked.schedule, &topic, "waiting", Duration::from_secs(60)).await;
    clocked.set_ahead(-HOUR * 1000).await;
    arm(&clocked.schedule, &topic, "new", Duration::from_millis(200)).await;
    tally.until(2).await;
    gate.add_permits(100);
    let gone = async || clocked.schedule.look_up(&topic, ["held"]).await.expect("a look").is_none();
    eventually(PATIENCE, "the held one to end", gone).await;
    assert_eq!(tally.runs_of("waiting"), 0);
    clocked.set_ahead(61_000).await;
    let stats = running.done(&tally, 3).await;
    assert_eq!((stats.panics, stats.redelivered), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_small_steps_while_timers_run_lose_nothing() {
    const TIMERS: u32 = 200;
    let Some(clocked) = Clocked::start().await else { return };
    let (topic, tally, running) = counting(listener(&clocked.server), LEASE).await;
    arm_all(&clocked.schedule, &topic, 0..TIMERS, |n| Duration::from_millis(u64::from(n) * 15)).await;
    for step in 0..30 {
        clocked.set_ahead([0, 300, -300, 50, -20][step % 5]).await;
        tokio::time::sleep(Duration::from_millis(100)).await; // the fault
    }
    let stats = running.done(&tally, TIMERS as usize).await;
    assert_eq!((stats.panics, stats.redelivered), (0, 0));
    println!("C14 small steps: late p50, max {:?}", tally.lateness());
}

/// Only the server's clock counts: a listener whose own is ten minutes off runs everything on time.
#[tokio::test(flavor = "multi_thread")]
async fn c14_a_listener_whose_clock_is_wrong_runs_everything_once() {
    let Some(library) = library() else { return };
    for wrong in ["+600", "-600"] {
        let (server, folder) = (Server::start().await, tempfile::tempdir().expect("a folder"));
        let schedule = Schedule::connect(&server.url()).await.expect("a schedule");
        let environment =
            [("LD_PRELOAD", &*library), ("FAKETIME", wrong), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let process = Process::listen_with(&server.url(), folder.path(), &environment);
        for n in 0..20 {
            let _ = process::arm(&schedule, n, Work::Succeed, 0).await;
        }
        eventually(PATIENCE, "all to begin", async || starts(folder.path()).len() >= 20).await;
        process.signal("TERM");
        assert!(process.end().await.0.success());
        let mut begun: Vec<_> = starts(folder.path());
        begun.sort_unstable();
        assert_eq!(begun, (0..20).map(|n| (n, 1)).collect::<Vec<_>>(), "clock {wrong} s");
    }
}
