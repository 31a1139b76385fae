//! How a listener and its topics are, for those who ask from outside: whether it is past its start, what is overdue,
//! what has failed, whether its handlers' runtime stands still, how much of attached keys waits, and what the server
//! refuses to let it learn of them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Error;
use crate::escape::of_error;
use crate::lock::lock;
use crate::runtime::{EventMode, Partition, Runtime};
use crate::wire::{Index, NodeId};

/// Whether a listener is past its start and not stopping yet.
#[derive(Debug, Default)]
pub(crate) struct Listening(AtomicBool);

/// It is, until this is dropped, as it is when whoever runs the listener gives it up.
pub(crate) struct Ready<'a>(&'a Listening);

impl Listening {
    pub(crate) fn begin(&self) -> Ready<'_> {
        self.0.store(true, Ordering::Relaxed);
        Ready(self)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// What is known of one partition.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    /// Whether nothing can be claimed until a name of ours is repaired; by index.
    parked: [AtomicBool; 2],
    /// How many ms overdue the head was when a sweep last looked.
    overdue: AtomicU64,
}

impl Condition {
    pub(crate) fn park(&self, index: Index, parked: bool) {
        self.parked[index as usize].store(parked, Ordering::Relaxed);
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.parked.iter().any(|parked| parked.load(Ordering::Relaxed))
    }

    /// A sweep has seen this head at this time.
    pub(crate) fn note_head(&self, now: u64, head: Option<u64>) {
        self.overdue.store(head.map_or(0, |head| now.saturating_sub(head)), Ordering::Relaxed);
    }

    pub(crate) fn overdue_ms(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }
}

/// The last error of its kind, and when it was.
#[derive(Debug, Default)]
pub(crate) struct LastError(Mutex<Option<(SystemTime, String)>>);

impl LastError {
    pub(crate) fn note(&self, error: &Error) {
        self.note_text(of_error(&error.to_string()));
    }

    pub(crate) fn note_text(&self, error: String) {
        *lock(&self.0) = Some((SystemTime::now(), error));
    }

    pub(crate) fn get(&self) -> Option<(SystemTime, String)> {
        lock(&self.0).clone()
    }
}

impl Runtime {
    /// Returns what is heard of expired keys. The reader of attached ones knows more, a little later.
    pub(crate) fn mode(&self) -> EventMode {
        match self.attached_topics().next() {
            Some(_) => self.stream_state.known().mode,
            None => self.nodes.mode(),
        }
    }

    /// Whether a canary of each server was heard, and none was missed since.
    pub(crate) fn hears(&self) -> bool {
        self.nodes.mode() == EventMode::Expired
    }
}

/// The longest that any of them is overdue.
pub(crate) fn oldest_overdue_ms<'a>(
    partitions: impl IntoIterator<Item = &'a std::sync::Arc<Partition>>,
) -> u64 {
    partitions.into_iter().map(|partition| partition.condition.overdue_ms()).max().unwrap_or(0)
}

/// Since when it has polled nothing, if it does not.
#[derive(Debug, Default)]
pub(crate) struct Stall(watch::Sender<Option<Instant>>);

impl Stall {
    /// It polls nothing; whether that is news.
    pub(crate) fn begin(&self, since: Instant) -> bool {
        self.0.send_if_modified(|stalled| stalled.replace(since.min(stalled.unwrap_or(since))).is_none())
    }

    /// It polls again. Returns for how long it did not.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.0.send_replace(None).map(|since| since.elapsed())
    }

    /// For how long it has polled nothing.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.0.borrow().map(|since| since.elapsed())
    }

    /// Returns once it polls.
    pub(crate) async fn is_over(&self) {
        // The sender is `self`, so that it cannot be gone.
        let _ = self.0.subscribe().wait_for(Option::is_none).await;
    }
}

/// What waits at present, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// To be read, or until what was read is written.
    pub(crate) reads: Gauge,
    /// To be written, without values.
    pub(crate) writes: Gauge,
}

/// A sum that falls again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicUsize>);

/// Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Amount {
    gauge: Gauge,
    amount: usize,
}

impl Gauge {
    pub(crate) fn add(&self, amount: usize) -> Amount {
        self.0.fetch_add(amount, Ordering::Relaxed);
        Amount { gauge: self.clone(), amount }
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Amount {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// What a user needs a right for, beside the rights to read keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To find keys.
    Scan,
    /// To hear of their changes.
    Changes,
}

/// A right to read keys that is missing.
#[derive(Clone, Debug)]
pub(crate) struct RefusedRead {
    /// The server that has refused to read them.
    pub(crate) by: NodeId,
    /// The rule that is missing: `+<command>`, or `~<prefix>*`.
    pub(crate) rule: String,
    /// A key that was to be read.
    pub(crate) key: Bytes,
    /// When the latest refused read was sent.
    pub(crate) last: Instant,
}

/// Why each is refused at present, if it is.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    /// A server has each rule once, so these are no more than commands that read keys, and one.
    reads: Vec<(RefusedRead, String)>,
    /// Where a right was granted last, and when the read was sent that showed it.
    granted: Option<(NodeId, Instant)>,
    others: [Option<String>; 2],
}

impl Refusals {
    /// It is refused; whether that is news.
    pub(crate) fn begin(&self, asked: Asked, what: &str) -> bool {
        lock(&self.0).others[asked as usize].replace(of_error(what)).is_none()
    }

    /// It is granted; whether it was not until now.
    pub(crate) fn end(&self, asked: Asked) -> bool {
        lock(&self.0).others[asked as usize].take().is_some()
    }

    /// A read is refused; whether it is news that this right is missing. A listener may process answers in another order than
    /// the server gave them, so a read that was sent before one that showed a grant is no news.
    pub(crate) fn begin_read(&self, read: RefusedRead, what: &str) -> bool {
        let mut refused = lock(&self.0);
        if refused.granted.is_some_and(|(by, sent)| by == read.by && read.last <= sent) {
            return false;
        }
        let same = |(one, _): &&mut (RefusedRead, String)| one.by == read.by && one.rule == read.rule;
        if let Some((one, _)) = refused.reads.iter_mut().find(same) {
            one.last = one.last.max(read.last);
            return false;
        }
        refused.reads.push((read, of_error(what)));
        true
    }

    /// Ends the refusals that an answer disproves. `by` is the server that has answered, `sent` when the read was sent.
    pub(crate) fn end_reads(&self, by: NodeId, sent: Instant, is_granted: impl Fn(&RefusedRead) -> bool) {
        let mut refused = lock(&self.0);
        let before = refused.reads.len();
        refused.reads.retain(|(read, _)| !is_granted(read));
        if refused.reads.len() < before {
            refused.granted = Some((by, sent));
        }
    }

    /// Whether keys cannot be read or found.
    pub(crate) fn hide_keys(&self) -> bool {
        let refused = lock(&self.0);
        !refused.reads.is_empty() || refused.others[Asked::Scan as usize].is_some()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let refused = lock(&self.0);
        refused.reads.iter().map(|(_, what)| what).chain(refused.others.iter().flatten()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_news_once_and_lasts_until_it_ends() {
        let stall = Stall::default();
        stall.is_over().await;
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(stall.begin(began) && !stall.begin(Instant::now()));
        assert_eq!(stall.lasts(), Some(Duration::from_secs(1)));
        let waits = stall.is_over();
        tokio::pin!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert_eq!(stall.end(), Some(Duration::from_secs(1)));
        waits.await;
        assert_eq!((stall.lasts(), stall.end()), (None, None));
    }

    #[test]
    fn each_is_news_once_until_it_is_granted() {
        let (refusals, by, start) = (Refusals::default(), NodeId::NONE, Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let begin = |rule: &str, ms, what| {
            let read = RefusedRead { by, rule: rule.into(), key: "a".into(), last: at(ms) };
            refusals.begin_read(read, what)
        };
        assert!(refusals.begin(Asked::Changes, "c") && !refusals.hide_keys());
        assert!(begin("+get", 1, "a") && !begin("+get", 2, "b"));
        assert!(begin("+type", 3, "t") && refusals.hide_keys());
        assert_eq!(refusals.all(), ["a", "t", "c"]);
        refusals.end_reads(by, at(4), |read| read.rule == "+get");
        assert_eq!(refusals.all(), ["t", "c"]);
        refusals.end_reads(by, at(6), |_| true);
        assert!(!begin("+get", 5, "a") && !refusals.hide_keys());
        refusals.end_reads(by, at(8), |_| true);
        assert!(begin("+get", 7, "a") && refusals.hide_keys());
        assert!(refusals.end(Asked::Changes) && !refusals.end(Asked::Changes));
    }
}
