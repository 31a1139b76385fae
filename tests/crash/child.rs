//! A listener in a process of its own.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keylapse::timers::ArmingId;
use keylapse::{Done, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::Server;

/// What a child is told to be.
const URL: &str = "KEYLAPSE_CHILD_URL";
/// Where its handlers write the journal: to the server itself, as a service between may refuse what that takes.
const JOURNAL: &str = "KEYLAPSE_CHILD_JOURNAL_URL";
const TOPIC: &str = "KEYLAPSE_CHILD_TOPIC";
const LEASE: &str = "KEYLAPSE_CHILD_LEASE_MS";
/// The file in which attempts that are told to "hold" say when they held their leases.
const LEDGER: &str = "KEYLAPSE_CHILD_LEDGER";

/// The topic that a parent arms and its children run.
fn topic(name: &str, lease: Duration) -> Topic<String> {
    let topic = Topic::named(name, &format!("app:{name}:{{id}}")).expect("a topic").lease(lease);
    // Long, so that a test can meet a timer that is claimed and not yet due; a second is the most that is allowed.
    topic.lookahead((lease / 4).min(Duration::from_secs(1)))
}

/// The topic of this name, and a schedule to arm it.
pub(crate) async fn scheduled(server: &Server, name: &str, lease: Duration) -> (Topic<String>, Schedule) {
    (topic(name, lease), Schedule::connect(&server.url()).await.expect("a schedule"))
}

pub(crate) async fn arm(schedule: &Schedule, topic: &Topic<String>, id: &str, delay: Duration, what: &str) {
    let armed = schedule.arm(topic, [id], delay, &what.to_owned()).await;
    assert!(armed.expect("armed").is_armed());
}

/// A listener process; killed when dropped.
pub(crate) struct Listening(Child);

impl Listening {
    pub(crate) fn start(server: &Server, topic: &str, lease: Duration) -> Self {
        Self::start_with(server, topic, lease, Path::new("/dev/null"))
    }

    pub(crate) fn start_with(server: &Server, topic: &str, lease: Duration, ledger: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "crash::child::listen_if_told_to", "--nocapture"])
            .env(URL, server.url())
            .env(JOURNAL, server.plain_url())
            .env(TOPIC, topic)
            .env(LEASE, lease.as_millis().to_string())
            .env(LEDGER, ledger)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("a child"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// SIGKILL, and wait for the end.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill(); // it may be dead already
        let _ = self.0.wait();
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child's state").is_some()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("a signal");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Not a test of its own: what a child does.
#[test]
fn listen_if_told_to() {
    let Ok(url) = std::env::var(URL) else { return };
    let name = std::env::var(TOPIC).expect("a topic");
    let lease = std::env::var(LEASE).expect("a lease").parse().expect("milliseconds");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let journal = std::env::var(JOURNAL).expect("a journal");
        let journal = keylapse_support::connect(&journal).await.expect("a connection");
        let handler = move |lapse: Lapse<String>| handle(lapse, journal.clone());
        let topic = topic(&name, Duration::from_millis(lease));
        let listener = Listener::builder(url).on(topic, handler).build().expect("a listener");
        listener.run_until(std::future::pending::<()>()).await.expect("a run");
    });
}

/// Says in Redis what it does, and then does what the payload says.
async fn handle(
    lapse: Lapse<String>,
    mut journal: redis::aio::MultiplexedConnection,
) -> Result<Done, Failure> {
    if lapse.payload() == "hold" {
        return hold(&lapse).await;
    }
    let say = |what: &str| {
        let redelivered = if lapse.is_redelivered() { "again" } else { "first" };
        format!("{what} {} {redelivered} {}", std::process::id(), lapse.id())
    };
    let mut log = async |what: &str| {
        let list = format!("journal:{}", String::from_utf8_lossy(lapse.key()));
        redis::cmd("RPUSH").arg(list).arg(say(what)).exec_async(&mut journal).await
    };
    log("started").await?;
    match lapse.payload().as_str() {
        "hang once" if !lapse.is_redelivered() => std::future::pending::<()>().await,
        "abort" => std::process::abort(),
        "until lost" if !lapse.is_redelivered() => {
            lapse.lease_lost().await;
            log("told").await?;
            std::future::pending::<()>().await;
        }
        "bystander" => tokio::time::sleep(Duration::from_millis(50)).await,
        _ => {}
    }
    log("ended").await?;
    Ok(Done)
}

/// Asks again and again whether the lease is held, for up to two leases, sometimes blocking its thread.
async fn hold(lapse: &Lapse<String>) -> Result<Done, Failure> {
    let mut held = Held::begin(lapse.arming());
    for _ in 0..rand::random_range(1..400) {
        held.look(|| lapse.has_lease());
        if rand::random_ratio(1, 20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    held.look(|| lapse.has_lease());
    Ok(Done)
}

/// When an attempt saw that it held its lease, by a clock that all processes share; written down however it ends.
/// It did from the end of the first question that said so to the beginning of the last.
struct Held {
    arming: ArmingId,
    from: Option<i128>,
    to: i128,
}

impl Held {
    fn begin(arming: ArmingId) -> Self {
        Self { arming, from: None, to: 0 }
    }

    fn look(&mut self, has_lease: impl FnOnce() -> bool) {
        let before = nanoseconds();
        if has_lease() {
            (self.from, self.to) = (Some(self.from.unwrap_or_else(nanoseconds)), before);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(from) = self.from else { return };
        let file = std::env::var_os(LEDGER).expect("a ledger");
        let mut file = OpenOptions::new().append(true).create(true).open(file).expect("it opens");
        // In one write: other processes append, too.
        let line = format!("{} {from} {}\n", self.arming, self.to.max(from));
        file.write_all(line.as_bytes()).expect("it is written");
    }
}

fn nanoseconds() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// What children have said of one key.
pub(crate) struct Journal {
    connection: redis::aio::MultiplexedConnection,
    list: String,
}

/// One line of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) pid: u32,
    pub(crate) redelivered: bool,
    pub(crate) attempt_id: String,
}

impl Journal {
    pub(crate) async fn of(server: &Server, key: &str) -> Self {
        Self { connection: server.conn().await, list: format!("journal:{key}") }
    }

    /// The next line; waits for it.
    pub(crate) async fn next(&mut self, within: Duration) -> Line {
        let mut pop = redis::cmd("BLPOP");
        pop.arg(&self.list).arg(within.as_secs_f64());
        let line: Option<(String, String)> = pop.query_async(&mut self.connection).await.expect("a journal");
        let (_, line) = line.unwrap_or_else(|| panic!("nothing in {} within {within:?}", self.list));
        let words: Vec<_> = line.split(' ').collect();
        let [what, pid, redelivered, id] = words[..] else { panic!("a line: {line}") };
        Line {
            what: what.to_owned(),
            pid: pid.parse().expect("a pid"),
            redelivered: redelivered == "again",
            attempt_id: id.to_owned(),
        }
    }

    /// How many lines are left.
    pub(crate) async fn left(&mut self) -> usize {
        redis::cmd("LLEN").arg(&self.list).query_async(&mut self.connection).await.expect("a journal")
    }
}
