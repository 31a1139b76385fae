//! A listener process.

use std::time::Duration;

use bytes::Bytes;
use keylapse::{Done, Expired, Failure, Lapse, Listener, ListenerBuilder};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Orders, watch_over};
use crate::clock::{micros_since_1970, now};
use crate::job::{self, Job, Kind, Work};
use crate::ledger::{End, Entry, Ledger};

/// Attempts at a time. Few, so that a queue forms and faults find something to hit.
const CONCURRENCY: usize = 64;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Runs handlers until SIGTERM. At SIGUSR1 the listener is dropped, and another one takes its place; at SIGUSR2 all
/// threads on which handlers run are blocked for a lease.
///
/// # Errors
/// When the listener cannot be built or refuses to start.
pub async fn listen(orders: &Orders) -> keylapse::Result<()> {
    let ledger = Ledger::open(&orders.folder).expect("a ledger");
    watch_over(ledger.clone());
    if std::process::id().is_multiple_of(2) {
        tracing::subscriber::set_global_default(Unread).expect("nobody else reads the log");
    }
    let (mut end, mut let_go) = (asked_by(SignalKind::terminate()), asked_by(SignalKind::user_defined1()));
    tokio::spawn(block_threads_when_asked(orders.lease()));
    loop {
        let builder = Listener::builder(orders.client()?).concurrency(CONCURRENCY);
        let on = |builder: ListenerBuilder, kind: Kind| {
            let ledger = ledger.clone();
            builder.on(kind.topic(orders.lease()), move |lapse| handle(lapse, ledger.clone()))
        };
        let several = orders.replicas.is_some();
        let (topic, notes) = (if several { job::orders } else { job::attached }, ledger.clone());
        let builder = builder.attach(topic(orders.lease()), move |lapse| fire(lapse, notes.clone()));
        let kinds = if several { &[Kind::Sharded][..] } else { &Kind::ALL };
        let listener = kinds.iter().copied().fold(builder, on).build()?;
        tokio::select! {
            ended = listener.run_until(end.recv()) => return ended,
            _ = let_go.recv() => ledger.write(Entry::LetGo),
        }
    }
}

fn asked_by(kind: SignalKind) -> Signal {
    signal(kind).expect("a signal handler")
}

async fn block_threads_when_asked(time: Duration) {
    let mut asked = asked_by(SignalKind::user_defined2());
    while asked.recv().await.is_some() {
        for _ in 0..tokio::runtime::Handle::current().metrics().num_workers() {
            tokio::spawn(async move { std::thread::sleep(time) });
        }
    }
}

/// A log whose reader is gone.
struct Unread;

impl tracing::Subscriber for Unread {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() <= tracing::Level::INFO && of.is_event()
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("nobody reads the log");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Of a hundred keys one fails once, and ten take as long as faults do.
async fn fire(lapse: Lapse<Expired<Bytes>>, ledger: Ledger) -> Result<Done, Failure> {
    let at = now();
    let (key, id, attempt) = (String::from_utf8_lossy(lapse.key()).into_owned(), lapse.id(), lapse.attempt());
    let (fails, lasts) = (attempt == 1 && key.ends_with("14"), key.ends_with('7'));
    let expiry = format!("{:?}", lapse.payload().expiry());
    let deadline = micros_since_1970(lapse.deadline());
    ledger.write_at(at, Entry::Fired { key: key.clone(), id: id.clone(), attempt, deadline, expiry });
    let ended = move |end| Entry::FiredEnded { key: key.clone(), id: id.clone(), attempt, end };
    let run = Run { ended: Box::new(ended), ledger, has_ended: false };
    tokio::time::sleep(Duration::from_millis(if lasts { 500 } else { 5 })).await;
    if fails {
        return run.fails();
    }
    run.end(End::Done);
    Ok(Done)
}

async fn handle(lapse: Lapse<Job>, ledger: Ledger) -> Result<Done, Failure> {
    let at = now(); // before anything else: whether it is early is judged by this
    let Job { work, millis, .. } = *lapse.payload();
    let run = Run::open(at, &lapse, ledger.clone());
    watch_lease(&lapse, Duration::from_millis(millis), ledger).await;
    let is_first = lapse.attempt() == 1;
    match work {
        Work::UntilLost if !lapse.is_redelivered() => {
            lapse.lease_lost().await;
            run.end(End::Done);
            Ok(Done)
        }
        Work::Abort => std::process::abort(),
        Work::PanicOnce if is_first => {
            run.end(End::Failed);
            panic!("as it was told to");
        }
        Work::FailOnce if is_first => run.fails(),
        Work::Fail => run.fails(),
        Work::Succeed | Work::FailOnce | Work::PanicOnce | Work::UntilLost => {
            run.end(End::Done);
            Ok(Done)
        }
    }
}

/// Asks again and again for so long whether the lease is held, and writes down when it was.
async fn watch_lease(lapse: &Lapse<Job>, time: Duration, ledger: Ledger) {
    let mut leased = Leased { n: lapse.payload().n, ledger, since: None, until: 0 };
    let end = tokio::time::Instant::now() + time;
    while !time.is_zero() {
        leased.look(|| lapse.has_lease());
        let now = tokio::time::Instant::now();
        if now >= end {
            break;
        }
        tokio::time::sleep_until(end.min(now + BETWEEN_LOOKS)).await;
    }
}

/// When a handler saw that it held the lease; written down however it ends.
struct Leased {
    n: u64,
    ledger: Ledger,
    since: Option<u64>,
    until: u64,
}

impl Leased {
    fn look(&mut self, has_lease: impl FnOnce() -> bool) {
        let before = now();
        if has_lease() {
            (self.since, self.until) = (Some(self.since.unwrap_or_else(now)), before);
        }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.ledger.write(Entry::Leased { n: self.n, since, until: self.until.max(since) });
        }
    }
}

/// An attempt in the ledger. Dropped without an end, it was dropped.
struct Run {
    ledger: Ledger,
    ended: Box<dyn Fn(End) -> Entry + Send + Sync>,
    has_ended: bool,
}

impl Run {
    fn open(at: u64, lapse: &Lapse<Job>, ledger: Ledger) -> Self {
        let (n, attempt) = (lapse.payload().n, lapse.attempt());
        let started = Entry::Started {
            n,
            key: String::from_utf8_lossy(lapse.key()).into_owned(),
            attempt,
            deadline: micros_since_1970(lapse.deadline()),
            source: lapse.source().as_str().to_owned(),
        };
        ledger.write_at(at, started);
        Self { ledger, ended: Box::new(move |end| Entry::Ended { n, attempt, end }), has_ended: false }
    }

    fn end(mut self, end: End) {
        self.has_ended = true;
        self.ledger.write((self.ended)(end));
    }

    fn fails(self) -> Result<Done, Failure> {
        self.end(End::Failed);
        Err(Failure::retry("as it was told to"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.has_ended {
            self.ledger.write((self.ended)(End::Dropped));
        }
    }
}
