//! A server, a writer that knows nothing of keylapse, and listeners whose handlers take notes.

use std::collections::HashSet;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse::attach::KeptValue;
use keylapse::handler::Handler;
use keylapse::health::EventMode;
use keylapse::stats::{AttachedStats, Stats};
use keylapse::{Attached, Done, Expired, Expiry, Failure, Lapse, Listener, ListenerBuilder, Topic};
use keylapse_support::{Binary, Server, eventually, skipped};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// All flags that attached topics can use.
pub(crate) const ALL_FLAGS: &str = "KExg$";

/// The topic of most tests: each key `app:order:<id>`.
pub(crate) fn orders() -> Topic<Bytes> {
    Topic::raw_named("orders", "app:order:{id}").unwrap()
}

/// The same, with copies of values.
pub(crate) fn orders_with_values() -> Attached<Bytes> {
    Attached::new(orders()).keep_values(1024)
}

/// A server with these notification flags.
pub(crate) async fn server(flags: &str) -> Server {
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
    Server::builder().config("notify-keyspace-events", flags).start().await
}

/// What one run of a handler was told.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) key: String,
    pub(crate) bytes: Bytes,
    pub(crate) attempt: u32,
    pub(crate) value: KeptValue<Bytes>,
    /// When the value was read, in ms.
    pub(crate) value_read: Option<u64>,
    pub(crate) expiry: Expiry,
    pub(crate) deadline_known: bool,
    pub(crate) deadline: u64,
    pub(crate) started: u64,
    pub(crate) id: String,
    /// When it ran, by this machine's clock.
    pub(crate) at: u64,
}

impl Run {
    pub(crate) fn of(lapse: &Lapse<Expired<Bytes>>) -> Self {
        let expired = lapse.payload();
        let ms = |at: SystemTime| u64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        Self {
            key: String::from_utf8_lossy(lapse.key()).into_owned(),
            bytes: Bytes::copy_from_slice(lapse.key()),
            attempt: lapse.attempt(),
            value: expired.value_at_last_read().clone(),
            value_read: expired.value_read_at().map(ms),
            expiry: expired.expiry(),
            deadline_known: expired.deadline_known(),
            deadline: ms(lapse.deadline()),
            started: now(),
            id: lapse.id(),
            at: now(),
        }
    }

    /// The value, where it was captured as a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            KeptValue::Kept(value) => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }
}

/// The notes of all handlers of a test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    runs: Arc<Mutex<Vec<Run>>>,
    /// In ms since 1970. Runs of keys with an earlier deadline are left out.
    from: Arc<AtomicU64>,
}

impl Notes {
    /// A handler that takes notes and succeeds.
    pub(crate) fn handler(&self) -> impl Handler<Expired<Bytes>> + use<> {
        self.failing(0)
    }

    /// A handler that takes notes and fails so often for each key.
    pub(crate) fn failing(&self, times: u32) -> impl Handler<Expired<Bytes>> + use<> {
        self.failing_if(move |_, lapse| lapse.attempt() <= times)
    }

    /// A handler that takes notes, and fails if this holds before.
    pub(crate) fn failing_if<F>(&self, fails: F) -> impl Handler<Expired<Bytes>> + use<F>
    where
        F: Fn(&Self, &Lapse<Expired<Bytes>>) -> bool + Send + Sync + 'static,
    {
        let notes = self.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            let fails = fails(&notes, &lapse);
            notes.note(&lapse);
            ready(if fails { Err(Failure::retry("not yet")) } else { Ok(Done) })
        }
    }

    pub(crate) fn note(&self, lapse: &Lapse<Expired<Bytes>>) {
        let (run, mut runs) = (Run::of(lapse), self.runs());
        if run.deadline >= self.from.load(Ordering::Relaxed) {
            runs.push(run);
        }
    }

    /// Leaves out runs of keys with an earlier deadline, those that were noted and those to come.
    fn leave_out_before(&self, deadline: u64) {
        let mut runs = self.runs();
        self.from.store(deadline, Ordering::Relaxed);
        runs.retain(|run| run.deadline >= deadline);
    }

    /// As [`in_time`]. If the machine was so busy that keys of a first preparation have expired, their runs are left out.
    pub(crate) async fn in_time(&self, ms: u64, left: u64, mut prepare: impl AsyncFnMut(u64)) -> u64 {
        let mut preparations = 0;
        let deadline = in_time(ms, left, async |deadline| {
            preparations += 1;
            prepare(deadline).await;
        })
        .await;
        if preparations > 1 {
            self.leave_out_before(deadline);
        }
        deadline
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.runs().len()
    }

    /// Returns whether handlers have run for so many keys, and for no others. It is cheap until that many runs are noted.
    pub(crate) fn are_of(&self, keys: usize) -> bool {
        let runs = self.runs();
        runs.len() >= keys && runs.iter().map(|run| &run.key).collect::<HashSet<_>>().len() == keys
    }

    pub(crate) fn of(&self, key: &str) -> Vec<Run> {
        self.runs().iter().filter(|run| run.key == key).cloned().collect()
    }

    /// Waits until handlers have run so often.
    #[track_caller]
    pub(crate) fn until(&self, count: usize) -> impl Future<Output = ()> + '_ {
        eventually(PATIENCE, "the handlers to run", async move || self.count() >= count)
    }
}

/// A listener that runs until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<keylapse::Result<()>>,
    pub(crate) stats: Stats,
}

impl Running {
    /// On this server, with what is attached to it.
    pub(crate) fn start(server: &Server, attach: impl FnOnce(ListenerBuilder) -> ListenerBuilder) -> Self {
        Self::at(&server.app_url(), attach)
    }

    /// At this URL: through a proxy, mostly.
    pub(crate) fn at(url: &str, attach: impl FnOnce(ListenerBuilder) -> ListenerBuilder) -> Self {
        let listener = attach(Listener::builder(url)).build().expect("a listener");
        let stats = listener.stats();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move { listener.run_until(stopped).await });
        Self { stop, task, stats }
    }

    /// Waits until it is in this mode.
    #[track_caller]
    pub(crate) fn until_mode(&self, mode: EventMode) -> impl Future<Output = ()> + '_ {
        eventually(PATIENCE, "the mode", async move || self.stats.mode() == mode)
    }

    /// Waits until so many keys were enrolled by this listener.
    #[track_caller]
    pub(crate) fn until_enrolled(&self, keys: u64) -> impl Future<Output = ()> + '_ {
        eventually(PATIENCE, "keys to be enrolled", async move || self.attached().tracked >= keys)
    }

    /// Whether anything is heard at all.
    pub(crate) fn hears(&self) -> bool {
        hears(&self.stats)
    }

    /// Waits until it hears, and has scanned.
    #[track_caller]
    pub(crate) fn until_scanned(&self) -> impl Future<Output = ()> + '_ {
        let scanned = async || self.hears() && self.attached().scans > 0;
        eventually(PATIENCE, "an anchor and a scan", scanned)
    }

    /// What was counted of the only attached topic.
    pub(crate) fn attached(&self) -> AttachedStats {
        self.stats.attached("orders").expect("the topic is attached")
    }

    /// As SIGKILL would: nothing is handed back, and nothing written down.
    pub(crate) fn kill(self) {
        self.task.abort();
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        let stopped = tokio::time::timeout(PATIENCE, self.task).await.expect("it stops in time");
        stopped.expect("no panic").expect("no error");
    }
}

/// Returns true if the listener of these counters receives what the server announces.
pub(crate) fn hears(stats: &Stats) -> bool {
    !matches!(stats.mode(), EventMode::Starting | EventMode::ScanOnly | EventMode::Unsubscribed)
}

/// How many keys are enrolled, in the topic's only partition.
pub(crate) async fn enrolled(server: &Server) -> i64 {
    redis::from_redis_value(server.cmd(&["HLEN", "keylapse:{orders/0}:tracked"]).await).unwrap()
}

/// How many keys are enrolled there whose deadlines are not before this, with and without a value to be read ahead.
pub(crate) async fn enrolled_from(server: &Server, from: u64) -> i64 {
    let least = (from - 1000).to_string();
    redis::from_redis_value(server.cmd(&["ZCOUNT", "keylapse:{orders/0}:checks", &least, "+inf"]).await)
        .unwrap()
}

/// Now, in ms.
pub(crate) fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// All servers at hand, with how each is called.
pub(crate) fn servers() -> Vec<Binary> {
    let all = Binary::all().expect("a server");
    for (kind, is_valkey) in [("Redis", false), ("Valkey", true)] {
        if !all.iter().any(|binary| binary.version().is_valkey == is_valkey) {
            skipped(&format!("the part for {kind}: none at hand; name one in KEYLAPSE_SERVERS"));
        }
    }
    all
}

/// The name of an order's key.
pub(crate) fn order(id: &str) -> String {
    format!("app:order:{id}")
}

/// A server, one listener, and its handlers' notes.
pub(crate) struct Harness {
    pub(crate) server: Server,
    pub(crate) notes: Notes,
    pub(crate) listener: Running,
    keeps_values: bool,
}

impl Harness {
    /// Where keys are found soon: by their events, or by scanning over and over.
    pub(crate) async fn hearing(flags: &str) -> Self {
        Self::with(flags, orders_with_values().scan_every(Duration::from_millis(100)), Notes::handler).await
    }

    /// Where nothing is heard, and that has been so for long enough not to leave keys to others.
    pub(crate) async fn blind() -> Self {
        let topic = orders_with_values().scan_every(Duration::from_millis(100));
        let harness = Self::begin(server("").await, topic, Notes::handler);
        harness.listener.until_mode(EventMode::ScanOnly).await;
        harness.pass(now()).await;
        harness.notes.runs().clear();
        harness
    }

    /// With this topic and this handler.
    pub(crate) async fn with<H: Handler<Expired<Bytes>>>(
        flags: &str,
        topic: Attached<Bytes>,
        handler: impl FnOnce(&Notes) -> H,
    ) -> Self {
        Self::on(server(flags).await, topic, handler).await
    }

    /// On this server.
    pub(crate) async fn on<H: Handler<Expired<Bytes>>>(
        server: Server,
        topic: Attached<Bytes>,
        handler: impl FnOnce(&Notes) -> H,
    ) -> Self {
        let harness = Self::begin(server, topic, handler);
        harness.listener.until_scanned().await;
        harness
    }

    /// The same, without waiting for anything.
    pub(crate) fn begin<H: Handler<Expired<Bytes>>>(
        server: Server,
        topic: Attached<Bytes>,
        handler: impl FnOnce(&Notes) -> H,
    ) -> Self {
        let notes = Notes::default();
        let keeps_values = !format!("{topic:?}").contains(" values: 0,");
        let listener = Running::start(&server, |builder| builder.attach(topic, handler(&notes)));
        Self { server, notes, listener, keeps_values }
    }

    /// On this server, with this listener. Waits for nothing.
    pub(crate) fn begin_with(server: Server, start: impl FnOnce(&Server, &Notes) -> Running) -> Self {
        let notes = Notes::default();
        let listener = start(&server, &notes);
        Self { server, notes, listener, keeps_values: true }
    }

    /// Writes an order that expires so many ms from now; its deadline.
    pub(crate) async fn write(&self, id: &str, value: &str, ms: u64) -> u64 {
        let deadline = now() + ms;
        self.write_until(id, value, deadline).await;
        deadline
    }

    pub(crate) async fn write_until(&self, id: &str, value: &str, deadline: u64) {
        self.server.cmd(&["SET", &order(id), value, "PXAT", &deadline.to_string()]).await;
    }

    /// Writes one and waits until it is enrolled, with half of its time left.
    pub(crate) async fn enrol(&self, id: &str, value: &str, ms: u64) -> u64 {
        self.enrol_and(&[id], value, ms, async || {}).await
    }

    /// The same of several with one deadline, and does this, all with half of their time left.
    pub(crate) async fn enrol_and(
        &self,
        ids: &[&str],
        value: &str,
        ms: u64,
        mut then: impl AsyncFnMut(),
    ) -> u64 {
        in_time(ms, ms / 2, async |deadline| {
            for id in ids {
                self.write_until(id, value, deadline).await;
            }
            for id in ids {
                self.until_watched(id, deadline).await;
            }
            then().await;
        })
        .await
    }

    /// The same, from a dump of another key.
    pub(crate) async fn restore(&self, id: &str, value: &str, ms: u64) -> u64 {
        self.cmd(&["SET", "elsewhere", value]).await;
        let redis::Value::BulkString(dump) = self.cmd(&["DUMP", "elsewhere"]).await else {
            panic!("no dump")
        };
        let (key, deadline) = (order(id), now() + ms);
        let until = deadline.to_string();
        self.server.cmd(&[b"RESTORE", key.as_bytes(), until.as_bytes(), &dump, b"ABSTTL"]).await;
        self.until_watched(id, deadline).await;
        deadline
    }

    /// Waits until this deadline of it is remembered, together with its value, which is read a moment later
    /// where a scan has found the key.
    pub(crate) async fn until_watched(&self, id: &str, deadline: u64) {
        until_watched(&self.server, id, deadline, self.keeps_values).await;
    }

    /// Waits until nothing is remembered of it.
    pub(crate) async fn until_forgotten(&self, id: &str) {
        eventually(PATIENCE, &format!("{id} to be forgotten"), async || {
            watched(&self.server, &order(id)).await.is_none()
        })
        .await;
    }

    /// Waits until nothing is remembered of it, and it has not fired.
    pub(crate) async fn is_forgotten(&self, id: &str) {
        self.until_forgotten(id).await;
        assert!(self.of(id).is_empty(), "{:?}", self.of(id));
    }

    /// Waits until a key has fired that expires after this time, by as much as a sweep may be late.
    pub(crate) async fn pass(&self, time: u64) {
        let id = format!("sentinel-{time}");
        let mut deadline = time.max(now()) + 400;
        let gaps = || self.listener.stats.listener().gaps;
        let mut before = gaps();
        self.write_until(&id, "", deadline).await;
        eventually(PATIENCE, "a later key to fire", async || {
            // In a gap, and where nothing is heard, a key may end before a scan has found it.
            if (gaps() > before || !self.listener.hears()) && now() > deadline + 2000 {
                (before, deadline) = (gaps(), now() + 400);
                self.write_until(&id, "", deadline).await;
            }
            !self.of(&id).is_empty()
        })
        .await;
    }

    /// The same, of a key that was to fire then, and is to do so later: it has not before.
    pub(crate) async fn passes_without(&self, id: &str, time: u64, later: u64) {
        self.pass(time).await;
        assert!(self.of(id).iter().all(|run| run.at >= later), "{:?}", self.of(id));
    }

    pub(crate) fn of(&self, id: &str) -> Vec<Run> {
        self.notes.of(&order(id))
    }

    /// Waits until it has fired, and then for a later key; the only run.
    pub(crate) async fn only(&self, id: &str) -> Run {
        eventually(PATIENCE, "the key to fire", async || !self.of(id).is_empty()).await;
        self.pass(now()).await;
        let runs = self.of(id);
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// The same, of a key with this deadline and value.
    pub(crate) async fn fires_once(&self, id: &str, value: &str, deadline: u64) -> Run {
        let run = self.only(id).await;
        assert_eq!((run.text(), run.deadline, run.deadline_known), (Some(value), deadline, true), "{run:?}");
        assert!(run.at >= deadline, "early: {run:?}");
        run
    }

    /// Has up to five keys change from a sofa to a lamp, and returns the id of the first that fires with a value read after the
    /// change. `becomes_a_lamp` returns the key's deadline, and when the change was done. The listener reads a value again 250 ms
    /// before the deadline; on a busy machine it may be too late, and then hands over the value before.
    pub(crate) async fn fires_with_its_new_value<'a>(
        &self,
        becomes_a_lamp: impl AsyncFn(&'a str) -> (u64, u64),
    ) -> &'a str {
        for id in ["1", "2", "3", "4", "5"] {
            let (deadline, done) = becomes_a_lamp(id).await;
            let run = self.only(id).await;
            assert_eq!((run.deadline, run.deadline_known), (deadline, true), "{run:?}");
            assert!(run.at >= deadline, "early: {run:?}");
            if run.value_read.is_some_and(|read| read >= done) {
                assert_eq!(run.text(), Some("a lamp"), "{run:?}");
                return id;
            }
        }
        panic!("no value was read again before its deadline");
    }

    /// A command of the writer's.
    pub(crate) async fn cmd(&self, words: &[&str]) -> redis::Value {
        self.server.cmd(words).await
    }
}

/// Prepares something that depends on a deadline, which is so many ms away, and is done with this much of that left. On a
/// machine that is too busy for it, it is done again with a deadline that is further away: before the first has passed, so
/// that nothing comes of that. Returns the deadline.
pub(crate) async fn in_time(ms: u64, left: u64, mut prepare: impl AsyncFnMut(u64)) -> u64 {
    for ms in [ms, 3 * ms, 9 * ms] {
        let deadline = now() + ms;
        let prepared = tokio::time::timeout(Duration::from_millis(ms - left), prepare(deadline)).await;
        if prepared.is_ok() && now() < deadline {
            return deadline;
        }
    }
    panic!("not prepared in {} ms, in vain", 9 * ms - left)
}

/// What is remembered of a key.
struct Watch {
    deadline: u64,
    has_copy: bool,
}

/// In the topic's only partition: deadline, position and time of the reading; where the server has a name, 9 bytes and
/// that, whose length and 128 are in the place of the deadline's first byte, which is 0; then when the value was read
/// that is kept.
async fn watch(server: &Server, key: &str) -> Option<Watch> {
    let kept = server.cmd(&["HGET", "keylapse:{orders/0}:tracked", key]).await;
    let bytes: Option<Vec<u8>> = redis::from_redis_value(kept).unwrap();
    let mut bytes = bytes?;
    let named = bytes[0].checked_sub(128).map_or(0, |length| 9 + usize::from(length));
    bytes[0] = 0;
    let deadline = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    Some(Watch { deadline, has_copy: bytes.len() > 28 + named })
}

/// The deadline that is remembered of a key.
pub(crate) async fn watched(server: &Server, key: &str) -> Option<u64> {
    watch(server, key).await.map(|watch| watch.deadline)
}

/// Waits until this deadline of an order is remembered, with its value or without.
pub(crate) async fn until_watched(server: &Server, id: &str, deadline: u64, with_value: bool) {
    let is_whole = |watch: Watch| watch.deadline == deadline && (watch.has_copy || !with_value);
    eventually(PATIENCE, &format!("{id} to be enrolled"), async || {
        watch(server, &order(id)).await.is_some_and(is_whole)
    })
    .await;
}

/// How many lives of a key wait behind its present lapse.
pub(crate) async fn lives(server: &Server, key: &str) -> u32 {
    let kept = server.cmd(&["HGET", "keylapse:{orders/0}:queued", key]).await;
    let bytes: Option<Vec<u8>> = redis::from_redis_value(kept).unwrap();
    bytes.map_or(0, |bytes| u32::from_be_bytes(bytes[1..5].try_into().unwrap()))
}

/// Writes a key that expires soon, and waits until it has fired.
pub(crate) async fn until_later_key(server: &Server, notes: &Notes) {
    server.cmd(&["SET", &order("last"), "", "PX", "500"]).await;
    eventually(PATIENCE, "a later key", async || !notes.of(&order("last")).is_empty()).await;
}

/// Until this time of the server's clock, which is this machine's.
pub(crate) async fn until_time(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms.saturating_sub(now()))).await;
}

/// What this test's thread logs, from now on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn keep() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, keylapse_support::subscribe(subscriber))
    }

    /// How many lines hold all these words.
    pub(crate) fn lines_with(&self, words: &[&str]) -> usize {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
