//! The health of a listener and its topics: readiness, overdue timers, last errors, a blocked runtime of the handlers,
//! the backlog of attached keys, and missing permissions.

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

/// True from the end of a listener's start until it stops.
#[derive(Debug, Default)]
pub(crate) struct ListenerReadiness(AtomicBool);

/// Keeps a listener ready until it is dropped, which also happens if the future of the listener is dropped.
pub(crate) struct ReadinessGuard<'a>(&'a ListenerReadiness);

impl ListenerReadiness {
    pub(crate) fn set_ready(&self) -> ReadinessGuard<'_> {
        self.0.store(true, Ordering::Relaxed);
        ReadinessGuard(self)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for ReadinessGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// The health of a partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionHealth {
    /// By index: true if nothing can be claimed until an operator repairs one of keylapse's own names.
    parked: [AtomicBool; 2],
    /// How many ms the earliest unclaimed timer was overdue at the last sweep.
    overdue: AtomicU64,
}

impl PartitionHealth {
    pub(crate) fn set_parked(&self, index: Index, parked: bool) {
        self.parked[index as usize].store(parked, Ordering::Relaxed);
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.parked.iter().any(|parked| parked.load(Ordering::Relaxed))
    }

    /// Records how long the earliest unclaimed timer is overdue. A sweep has read the server's time (`now`) and the
    /// timer's deadline (`head`), both in ms.
    pub(crate) fn note_overdue(&self, now: u64, head: Option<u64>) {
        self.overdue.store(head.map_or(0, |head| now.saturating_sub(head)), Ordering::Relaxed);
    }

    pub(crate) fn overdue_ms(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }
}

/// The last error and its time.
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
    /// Returns the event mode. With attached topics, their reader determines it, with a short delay.
    pub(crate) fn mode(&self) -> EventMode {
        match self.attached_topics().next() {
            Some(_) => self.stream_state.snapshot().mode,
            None => self.nodes.mode(),
        }
    }

    /// Returns whether expiry events of all servers arrive, as heartbeat keys prove.
    pub(crate) fn receives_expirations(&self) -> bool {
        self.nodes.mode() == EventMode::Expired
    }
}

/// Returns how many ms the most overdue timer of these partitions was overdue at the last sweeps.
pub(crate) fn oldest_overdue_ms<'a>(
    partitions: impl IntoIterator<Item = &'a std::sync::Arc<Partition>>,
) -> u64 {
    partitions.into_iter().map(|partition| partition.health.overdue_ms()).max().unwrap_or(0)
}

/// Since when the runtime of the handlers has polled no task, if it is blocked.
#[derive(Debug, Default)]
pub(crate) struct Stall(watch::Sender<Option<Instant>>);

impl Stall {
    /// Records that the runtime is blocked. Returns true unless this was already recorded.
    pub(crate) fn begin(&self, since: Instant) -> bool {
        self.0.send_if_modified(|stalled| stalled.replace(since.min(stalled.unwrap_or(since))).is_none())
    }

    /// Records that the runtime polls again. Returns how long it was blocked.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.0.send_replace(None).map(|since| since.elapsed())
    }

    /// Returns how long the runtime has been blocked, if it is.
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        self.0.borrow().map(|since| since.elapsed())
    }

    /// Waits until the runtime polls tasks.
    pub(crate) async fn wait_until_over(&self) {
        // This cannot fail, because `self` is the sender.
        let _ = self.0.subscribe().wait_for(Option::is_none).await;
    }
}

/// The bytes of queued work of attached topics.
#[derive(Debug, Default)]
pub(crate) struct BacklogGauges {
    /// Reads that wait, or whose results are not written yet.
    pub(crate) reads: ByteGauge,
    /// Writes that wait, without the values of keys.
    pub(crate) writes: ByteGauge,
}

/// A sum of bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteGauge(Arc<AtomicUsize>);

/// Bytes that count until this guard is dropped.
#[derive(Debug)]
pub(crate) struct ByteGaugeGuard {
    gauge: ByteGauge,
    amount: usize,
}

impl ByteGauge {
    pub(crate) fn add(&self, amount: usize) -> ByteGaugeGuard {
        self.0.fetch_add(amount, Ordering::Relaxed);
        ByteGaugeGuard { gauge: self.clone(), amount }
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for ByteGaugeGuard {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// A permission that attached topics need, in addition to those to read keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredPermission {
    /// Finding keys with SCAN.
    Scan,
    /// Receiving events of changes.
    Changes,
}

/// A read of keys that a server refused, and the permission that it needs.
#[derive(Clone, Debug)]
pub(crate) struct RefusedRead {
    /// The server that refused a read.
    pub(crate) by: NodeId,
    /// The missing ACL rule: `+<command>` or `~<prefix>*`.
    pub(crate) rule: String,
    /// A key of the refused read.
    pub(crate) key: Bytes,
    /// When the latest refused read was sent.
    pub(crate) last: Instant,
}

/// The permissions that the user currently lacks.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<RefusalTable>);

#[derive(Debug, Default)]
struct RefusalTable {
    /// Refused reads and their errors. Each server has a rule only once, so the length is limited by the number of
    /// commands that read keys, plus one.
    reads: Vec<(RefusedRead, String)>,
    /// The server that last granted a refused read, and when the read was sent that showed it.
    granted: Option<(NodeId, Instant)>,
    /// By [`RequiredPermission`]: the error, if the permission is missing.
    others: [Option<String>; 2],
}

impl Refusals {
    /// Records a missing permission and its error. Returns true unless it was already recorded.
    pub(crate) fn begin(&self, permission: RequiredPermission, error: &str) -> bool {
        lock(&self.0).others[permission as usize].replace(of_error(error)).is_none()
    }

    /// Records a granted permission. Returns whether it was missing before.
    pub(crate) fn end(&self, permission: RequiredPermission) -> bool {
        lock(&self.0).others[permission as usize].take().is_some()
    }

    /// Records a refused read and its error. Returns true unless its permission was already recorded as missing.
    ///
    /// A listener may process answers in another order than that of the server. A read that was sent before the one
    /// that showed a grant is therefore ignored.
    pub(crate) fn begin_read(&self, read: RefusedRead, error: &str) -> bool {
        let mut refused = lock(&self.0);
        if refused.granted.is_some_and(|(by, sent)| by == read.by && read.last <= sent) {
            return false;
        }
        let same = |(one, _): &&mut (RefusedRead, String)| one.by == read.by && one.rule == read.rule;
        if let Some((one, _)) = refused.reads.iter_mut().find(same) {
            one.last = one.last.max(read.last);
            return false;
        }
        refused.reads.push((read, of_error(error)));
        true
    }

    /// Removes the refused reads for which `is_granted` returns true, as an answer of server `by` shows. `sent` is when
    /// the answered read was sent.
    pub(crate) fn end_reads(&self, by: NodeId, sent: Instant, is_granted: impl Fn(&RefusedRead) -> bool) {
        let mut refused = lock(&self.0);
        let before = refused.reads.len();
        refused.reads.retain(|(read, _)| !is_granted(read));
        if refused.reads.len() < before {
            refused.granted = Some((by, sent));
        }
    }

    /// Returns whether keys cannot be read or found.
    pub(crate) fn hide_keys(&self) -> bool {
        let refused = lock(&self.0);
        !refused.reads.is_empty() || refused.others[RequiredPermission::Scan as usize].is_some()
    }

    /// Returns the errors of all missing permissions.
    pub(crate) fn all(&self) -> Vec<String> {
        let refused = lock(&self.0);
        refused.reads.iter().map(|(_, error)| error).chain(refused.others.iter().flatten()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_news_once_and_lasts_until_it_ends() {
        let stall = Stall::default();
        stall.wait_until_over().await;
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(stall.begin(began) && !stall.begin(Instant::now()));
        assert_eq!(stall.elapsed(), Some(Duration::from_secs(1)));
        let waits = stall.wait_until_over();
        tokio::pin!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert_eq!(stall.end(), Some(Duration::from_secs(1)));
        waits.await;
        assert_eq!((stall.elapsed(), stall.end()), (None, None));
    }

    #[test]
    fn each_is_news_once_until_it_is_granted() {
        let (refusals, by, start) = (Refusals::default(), NodeId::NONE, Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let begin = |rule: &str, ms, what| {
            let read = RefusedRead { by, rule: rule.into(), key: "a".into(), last: at(ms) };
            refusals.begin_read(read, what)
        };
        assert!(refusals.begin(RequiredPermission::Changes, "c") && !refusals.hide_keys());
        assert!(begin("+get", 1, "a") && !begin("+get", 2, "b"));
        assert!(begin("+type", 3, "t") && refusals.hide_keys());
        assert_eq!(refusals.all(), ["a", "t", "c"]);
        refusals.end_reads(by, at(4), |read| read.rule == "+get");
        assert_eq!(refusals.all(), ["t", "c"]);
        refusals.end_reads(by, at(6), |_| true);
        assert!(!begin("+get", 5, "a") && !refusals.hide_keys());
        refusals.end_reads(by, at(8), |_| true);
        assert!(begin("+get", 7, "a") && refusals.hide_keys());
        assert!(refusals.end(RequiredPermission::Changes) && !refusals.end(RequiredPermission::Changes));
    }
}
