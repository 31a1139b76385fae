//! What is heard in a gap takes memory in proportion, and no more than is promised.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keylapse::Attached;
use keylapse_support::{Server, eventually};

use crate::scene::{Notes, Running, order, orders, server};

/// Where a listener in a process of its own finds its server.
const URL: &str = "KEYLAPSE_CHILD_URL";
/// Where that listener writes how it is.
const STATE: &str = "child";
/// The last canary: while it is of another type, no canary can be made.
const CANARY: &str = "keylapse:{heartbeat/0}";

const KEYS: usize = 400_000;
/// So many bytes more than before does a listener take at most, as docs/attach.md promises.
const GROWTH: u64 = 100_000_000;
const LONG: Duration = Duration::from_secs(240);

/// A listener process; killed when dropped.
struct Listening(Child);

impl Listening {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "memory::listen_if_told_to"]).env(URL, server.url());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Its resident memory in bytes: now, and the most that it has ever been.
    fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
        };
        (bytes("VmRSS:"), bytes("VmHWM:"))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may be dead already
        let _ = self.0.wait();
    }
}

/// Not a test: what such a process does.
#[tokio::test(flavor = "multi_thread")]
async fn listen_if_told_to() {
    let Ok(url) = std::env::var(URL) else { return };
    // No scan is to find what is written later.
    let topic = Attached::new(orders()).cap(1).scan_every(Duration::from_secs(3600));
    let listener = Running::at(&url, |builder| builder.attach(topic, Notes::default().handler()));
    let mut line = keylapse_support::connect(&url).await.unwrap();
    loop {
        let (mode, unsure) = (format!("{:?}", listener.stats.mode()), listener.attached().ambiguous);
        let mut state = redis::cmd("HSET");
        state.arg(STATE).arg("mode").arg(mode).arg("unsure").arg(unsure);
        state.exec_async(&mut line).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn state(server: &Server, of: &str) -> String {
    redis::from_redis_value::<Option<String>>(server.cmd(&["HGET", STATE, of]).await)
        .unwrap()
        .unwrap_or_default()
}

/// Has so many keys expire, one after the other, and announced.
async fn expire(server: &Server, keys: usize) {
    let mut line = server.conn().await;
    let names: Vec<_> = (0..keys).map(|number| order(&format!("{number:09}"))).collect();
    for names in names.chunks(5000) {
        let mut pipe = redis::pipe();
        names.iter().for_each(|name| _ = pipe.cmd("SET").arg(name).arg("x").arg("PX").arg(1).ignore());
        pipe.exec_async(&mut line).await.unwrap();
    }
    for names in names.chunks(5000) {
        let there: usize = redis::cmd("EXISTS").arg(names).query_async(&mut line).await.unwrap();
        assert_eq!(there, 0);
    }
}

/// As a listener does that was stopped, or whose server makes no canary for a while.
#[tokio::test(flavor = "multi_thread")]
async fn hearing_four_hundred_thousand_expiries_in_a_gap_takes_less_than_a_hundred_megabytes() {
    let server = server("Ex").await;
    server.cmd(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"]).await;
    let listener = Listening::start(&server);
    eventually(LONG, "an anchor", async || state(&server, "mode").await == "Expired").await;
    server.cmd(&["DEL", CANARY]).await;
    server.cmd(&["LPUSH", CANARY, "no canary"]).await;
    eventually(LONG, "a gap", async || state(&server, "mode").await == "ScanOnly").await;
    let (before, _) = listener.memory();
    expire(&server, KEYS).await;
    server.cmd(&["DEL", CANARY]).await;
    let fired = async || state(&server, "unsure").await.parse::<usize>().unwrap_or_default() >= KEYS / 20;
    eventually(LONG, "them to fire", fired).await;
    let (_, peak) = listener.memory();
    println!("{before} bytes before, {peak} at the most");
    assert!(peak - before < GROWTH, "{} MB more for {KEYS} keys", (peak - before) / 1_000_000);
}
