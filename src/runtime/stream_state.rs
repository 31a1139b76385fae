//! What the roles of a listener know of its stream: whether it is anchored, and what can be heard.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;

use crate::log::{info, warn};

/// Others, who hear, have so long to look at a key before one who does not hear does.
const CHECK_DELAY_WITHOUT_EVENTS: Duration = Duration::from_millis(100);

/// What a listener can hear of keys that other programs write. It is proven by canaries, not read from
/// the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventMode {
    /// Nothing is known yet.
    #[default]
    Starting,
    /// Nothing is announced (flags cleared, CONFIG forbidden, RESP2, a dead line): keys are found by
    /// scanning and looked at after their deadlines. A key that expires before a scan has found it is lost,
    /// and a deleted key cannot be told from an expired one.
    ScanOnly,
    /// There is no subscription: the server refuses it, or cannot be reached. Calls go another way, and as far as they
    /// are answered all is as with [`Blind`](Self::Blind).
    Unsubscribed,
    /// Expiries are heard (`Ex`): each is fired. Keys are found by scanning; a key that expires before a
    /// scan has found it fires without its value.
    Expired,
    /// Expiries and changes of deadlines are heard (`KExg$`): keys are enrolled as they are written, and
    /// deletions are known as such.
    Changes,
    /// Expiries and some of the changes are heard (`KExg` or `KEx$`): scans find the rest.
    SomeChanges,
    /// Expiries are heard, but the server refuses to have keys of a topic read or found: the user lacks a right,
    /// which the log and [`TopicHealth::refused`](crate::health::TopicHealth::refused) name. What is announced fires without
    /// its value, and nothing is looked at when it is due.
    Unreadable,
}

impl EventMode {
    pub(crate) fn of(writes: bool, expires: bool) -> Self {
        match (writes, expires) {
            (true, true) => Self::Changes,
            (false, false) => Self::Expired,
            _ => Self::SomeChanges,
        }
    }

    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::ScanOnly => "blind",
            Self::Unsubscribed => "unsubscribed",
            Self::Expired => "expired",
            Self::Changes => "changes",
            Self::SomeChanges => "some_changes",
            Self::Unreadable => "unreadable",
        }
    }

    /// The more, the higher.
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

    /// Whether keys are looked at without anything that was announced.
    pub(crate) fn receives_nothing(self) -> bool {
        matches!(self, Self::ScanOnly | Self::Unsubscribed)
    }

    fn announce(self) {
        let mode = self.as_str();
        match self {
            Self::Starting => {}
            Self::ScanOnly => warn!(
                mode,
                "attached keys: nothing is heard. Keys are found by scanning alone, and one that expires before it \
                 is found is lost; deleted keys fire like expired ones. notify-keyspace-events Ex would change that"
            ),
            Self::Unsubscribed => warn!(
                mode,
                "attached keys: there is no subscription, and a line above gives the reason. Keys are found by scanning \
                 and read by calls when they are due; deleted keys fire like expired ones"
            ),
            Self::Expired => info!(
                mode,
                "attached keys: expiries are heard. Keys are enrolled by scanning; one that expires before it is found \
                 fires without its value. notify-keyspace-events KExg$ would enrol them as they are written"
            ),
            Self::Changes => info!(mode, "attached keys: expiries and changes are heard"),
            Self::SomeChanges => info!(
                mode,
                "attached keys: expiries and some changes are heard. Scans find the rest; \
                 notify-keyspace-events KExg$ would tell of all"
            ),
            Self::Unreadable => warn!(
                mode,
                "attached keys: the server refuses to have keys read or found. What it announces by itself, late, fires \
                 without its value: grant the right that is missing"
            ),
        }
    }
}

impl fmt::Display for EventMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of all servers' streams together, for those to whom it is the same where a key lies.
#[derive(Debug, Default)]
pub(crate) struct StreamState(watch::Sender<StreamSnapshot>);

/// What is known at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSnapshot {
    pub(crate) anchored: bool,
    /// Whether what is read now has a place in the stream, or none needs one as nothing is heard.
    pub(crate) can_track: bool,
    pub(crate) mode: EventMode,
    /// How often something may have been missed, and that was over.
    pub(crate) gaps: u64,
}

impl StreamState {
    /// Tells what is known now, where that is news. It is asked for in here, so that what is told last is the latest.
    pub(super) fn publish_snapshot(&self, now: impl FnOnce() -> StreamSnapshot) {
        let mut new_mode = None;
        self.0.send_if_modified(|known| {
            let before = *known;
            *known = now();
            new_mode = (known.mode != before.mode).then_some(known.mode);
            *known != before
        });
        // Not before: what logs may be slow, and readers wait for the change.
        if let Some(mode) = new_mode {
            mode.announce();
        }
    }

    pub(crate) fn known(&self) -> StreamSnapshot {
        *self.0.borrow()
    }

    /// For those who wait for changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<StreamSnapshot> {
        self.0.subscribe()
    }
}

impl StreamSnapshot {
    /// Of two servers: what can be done on either, and what is heard on the one that tells less.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            anchored: self.anchored || other.anchored,
            can_track: self.can_track || other.can_track,
            mode: if self.mode.detail_level() <= other.mode.detail_level() { self.mode } else { other.mode },
            gaps: self.gaps + other.gaps,
        }
    }

    /// How long a look must have been due before it is taken: no time for whoever hears, and none is
    /// taken in a gap.
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
    fn whoever_waits_is_told_of_what_is_new_and_of_nothing_else() {
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
            assert_eq!(known.has_changed().expect("it lives"), news, "{:?}", state.known());
            known.mark_unchanged();
        }
    }

    #[test]
    fn of_several_servers_one_that_is_blind_is_named_and_does_not_keep_others_from_their_work() {
        let heard = StreamSnapshot { anchored: true, can_track: true, mode: EventMode::Changes, gaps: 1 };
        let blind =
            StreamSnapshot { mode: EventMode::ScanOnly, can_track: true, ..StreamSnapshot::default() };
        let gap = StreamSnapshot { mode: EventMode::Expired, gaps: 2, ..StreamSnapshot::default() };
        for (one, other) in [(heard, blind), (blind, heard)] {
            assert_eq!(one.and(other), StreamSnapshot { mode: EventMode::ScanOnly, ..heard });
        }
        assert_eq!(heard.and(gap).check_delay(), Some(Duration::ZERO));
        assert_eq!(heard.and(gap).gaps, 3);
        assert_eq!(gap.and(gap).check_delay(), None);
    }
}
