//! The state of the event streams of attached topics, which the roles of a listener read: the event mode, and whether
//! events may be missing.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;

use crate::log::{info, warn};

/// How long a listener without events waits after a deadline before it checks the key. Listeners with events check it
/// first.
const CHECK_DELAY_WITHOUT_EVENTS: Duration = Duration::from_millis(100);

/// The events that a listener receives of attached keys. Heartbeat keys prove the mode; it is not read from the
/// server's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventMode {
    /// The mode is not known yet.
    #[default]
    Starting,
    /// No events arrive: flags are cleared, CONFIG is forbidden, the protocol is RESP2, or the connection is dead.
    /// Scans find keys, and each key is checked after its deadline. A key that expires before a scan finds it is
    /// lost. A deleted key looks like an expired one.
    ScanOnly,
    /// No subscription exists: the server refuses it or is unreachable. As far as calls are answered, keys are
    /// handled as with [`ScanOnly`](Self::ScanOnly).
    Unsubscribed,
    /// Expiries are received (`Ex`), and each runs. Scans find keys. A key that expires before a scan finds it runs
    /// without its value.
    Expired,
    /// Expiries and changes are received (`KExg$`). Keys are tracked when they are written, and deletions are
    /// distinguished from expiries.
    Changes,
    /// Expiries and some changes are received (`KExg` or `KEx$`). Scans find the rest.
    SomeChanges,
    /// Expiries are received, but the server refuses to read or find keys of a topic. The log and
    /// [`TopicHealth::refused`](crate::health::TopicHealth::refused) name the missing permission. Keys are not
    /// checked at their deadlines. Announced expiries run without values.
    Unreadable,
}

impl EventMode {
    /// Returns the mode of a listener that receives expiries, and writes and changes of TTLs as given.
    pub(crate) fn of_changes(writes: bool, expires: bool) -> Self {
        match (writes, expires) {
            (true, true) => Self::Changes,
            (false, false) => Self::Expired,
            _ => Self::SomeChanges,
        }
    }

    /// Returns the word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::ScanOnly => "scan_only",
            Self::Unsubscribed => "unsubscribed",
            Self::Expired => "expired",
            Self::Changes => "changes",
            Self::SomeChanges => "some_changes",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns a rank: a mode with more information has a higher one. Several servers have the mode of the lowest rank.
    fn detail_level(self) -> u8 {
        match self {
            Self::Unsubscribed => 0,
            Self::ScanOnly => 1,
            Self::Unreadable => 2,
            Self::Starting => 3,
            Self::Expired => 4,
            Self::SomeChanges => 5,
            Self::Changes => 6,
        }
    }

    /// Returns true if no events arrive, and only reads find out which keys have expired.
    pub(crate) fn receives_nothing(self) -> bool {
        matches!(self, Self::ScanOnly | Self::Unsubscribed)
    }

    /// Logs the mode, with its consequences.
    fn log(self) {
        let mode = self.as_str();
        match self {
            Self::Starting => {}
            Self::ScanOnly => warn!(
                mode,
                "attached keys: no events arrive. Keys are found by scanning, a key that expires before that is lost, \
                 and deleted keys run like expired ones: set notify-keyspace-events to Ex"
            ),
            Self::Unsubscribed => warn!(
                mode,
                "attached keys: no subscription, for the reason in a line above. Keys are found by scanning and checked \
                 at their deadlines, and deleted keys run like expired ones"
            ),
            Self::Expired => info!(
                mode,
                "attached keys: expiries are received. Keys are tracked by scanning, and a key that expires before that \
                 runs without its value. With notify-keyspace-events KExg$ keys are tracked when they are written"
            ),
            Self::Changes => info!(mode, "attached keys: expiries and changes are received"),
            Self::SomeChanges => info!(
                mode,
                "attached keys: expiries and some changes are received. Scans find the rest. \
                 With notify-keyspace-events KExg$ all changes are received"
            ),
            Self::Unreadable => warn!(
                mode,
                "attached keys: the server refuses to read or find keys. Expiries are announced late and run without \
                 values: grant the missing permission"
            ),
        }
    }
}

impl fmt::Display for EventMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The combined state of all servers' event streams.
#[derive(Debug, Default)]
pub(crate) struct StreamState(watch::Sender<StreamSnapshot>);

/// The state of event streams at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSnapshot {
    /// True while heartbeats prove that events arrive, and that none is missing.
    pub(crate) anchored: bool,
    /// True if keys can be tracked: either a read has a position in the stream, or no events arrive and no position
    /// is needed.
    pub(crate) can_track: bool,
    pub(crate) mode: EventMode,
    /// Counts the reasons to scan: gaps that have ended, slots that a server has taken over, and dropped prompts.
    pub(crate) gaps: u64,
}

impl StreamState {
    /// Publishes the state that `now` returns, if it has changed. `now` is called under the lock, so that the last
    /// published state is the latest.
    pub(super) fn publish_snapshot(&self, now: impl FnOnce() -> StreamSnapshot) {
        let mut new_mode = None;
        self.0.send_if_modified(|known| {
            let before = *known;
            *known = now();
            new_mode = (known.mode != before.mode).then_some(known.mode);
            *known != before
        });
        // Logged after the change, because logging may be slow and readers wait for the change.
        if let Some(mode) = new_mode {
            mode.log();
        }
    }

    pub(crate) fn snapshot(&self) -> StreamSnapshot {
        *self.0.borrow()
    }

    /// Returns a receiver of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<StreamSnapshot> {
        self.0.subscribe()
    }
}

impl StreamSnapshot {
    /// Combines the states of two servers. A flag is set if it is set for one of them. The event mode is the lower one, and
    /// the gaps are added.
    pub(super) fn combine(self, other: Self) -> Self {
        Self {
            anchored: self.anchored || other.anchored,
            can_track: self.can_track || other.can_track,
            mode: if self.mode.detail_level() <= other.mode.detail_level() { self.mode } else { other.mode },
            gaps: self.gaps + other.gaps,
        }
    }

    /// Returns how long after its deadline a key is checked, or `None` in a gap, during which no key is checked.
    pub(crate) fn check_delay(self) -> Option<Duration> {
        match self {
            Self { anchored: true, .. } => Some(Duration::ZERO),
            Self { mode, .. } if mode.receives_nothing() => Some(CHECK_DELAY_WITHOUT_EVENTS),
            Self { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_wake_receivers() {
        let (state, mut present) = (StreamState::default(), StreamSnapshot::default());
        let mut known = state.subscribe();
        for (change, news) in [
            ((|_: &mut StreamSnapshot| {}) as fn(&mut StreamSnapshot), false),
            (|known| known.anchored = true, true),
            (|known| known.anchored = true, false),
            (|known| known.gaps += 1, true),
            (|known| known.mode = EventMode::Expired, true),
            (|known| known.mode = EventMode::Expired, false),
        ] {
            change(&mut present);
            state.publish_snapshot(|| present);
            assert_eq!(known.has_changed().expect("the sender is alive"), news, "{:?}", state.snapshot());
            known.mark_unchanged();
        }
    }

    #[test]
    fn the_lowest_mode_of_several_servers_is_reported_and_does_not_stop_the_others() {
        let heard = StreamSnapshot { anchored: true, can_track: true, mode: EventMode::Changes, gaps: 1 };
        let blind =
            StreamSnapshot { mode: EventMode::ScanOnly, can_track: true, ..StreamSnapshot::default() };
        let gap = StreamSnapshot { mode: EventMode::Expired, gaps: 2, ..StreamSnapshot::default() };
        for (one, other) in [(heard, blind), (blind, heard)] {
            assert_eq!(one.combine(other), StreamSnapshot { mode: EventMode::ScanOnly, ..heard });
        }
        assert_eq!(heard.combine(gap).check_delay(), Some(Duration::ZERO));
        assert_eq!(heard.combine(gap).gaps, 3);
        assert_eq!(gap.combine(gap).check_delay(), None);
    }
}
