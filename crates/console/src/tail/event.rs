//! The items of a live tail.

use bytes::Bytes;
use serde::Serialize;

use crate::id::ArmingId;
use crate::text;
use crate::wire::TimerEvent;
use crate::wire::{DeadReason, Ending};

/// An item of a [`Tail`](super::Tail).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum TailItem {
    /// The start or the end of an attempt, or the end of a waiting timer.
    Event(TailEvent),
    /// Events are missing at about this position.
    Missed(Missed),
}

/// The start or the end of an attempt, or the end of a waiting timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TailEvent {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The time in ms since 1970, by the server's clock.
    pub at_ms: u64,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The arming ID, if it is known. It is mostly missing from `done` events.
    #[serde(serialize_with = "text::id_as_text")]
    pub id: Option<ArmingId>,
    /// The kind of event.
    pub event: Ending,
    /// The reason, if the timer became a dead letter.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text::reason_as_text")]
    pub reason: Option<DeadReason>,
    /// The number of the attempt that has started or ended. For a retry, a snooze and a release, the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// For a start, the time from the deadline to the claim, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// The deadline of the attempt or timer that follows, in ms since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
}

/// The reason why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "missed", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Missed {
    /// A call had more events than fit into one message, or the reader of the tail was too slow.
    Counted {
        /// The number of missing events.
        count: u64,
    },
    /// A connection was lost, or a partition has moved. The number of missing events is not known.
    Disconnected,
}

impl TailEvent {
    pub(super) fn of(topic: &str, partition: u32, told: TimerEvent, at_ms: u64) -> Self {
        let TimerEvent { what, reason, attempt, arming, at, key } = told;
        let shows = |name| what.row().shown.contains(name);
        // A deadline of 0 is unknown, and gives no lateness.
        let late = || if at == 0 { 0 } else { at_ms.saturating_sub(at) };
        Self {
            topic: topic.to_owned(),
            partition,
            at_ms,
            key,
            id: arming,
            event: what,
            reason,
            attempt: shows("{attempt}").then_some(attempt),
            late_ms: shows("{late}").then(late),
            next_ms: shows("{next}").then_some(at),
        }
    }

    /// Describes the event for people. `span` formats a length of time in ms, `ago` a time in ms since 1970.
    pub fn shown(&self, span: impl Fn(u64) -> String, ago: impl Fn(u64) -> String) -> String {
        let shown = self.event.row().shown;
        let shown = shown.replace("{attempt}", &self.attempt.unwrap_or_default().to_string());
        let shown = shown.replace("{late}", &span(self.late_ms.unwrap_or_default()));
        let shown = shown.replace("{next}", &ago(self.next_ms.unwrap_or_default()));
        shown.replace("{reason}", self.reason.map_or("", DeadReason::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: Ending, reason: Option<DeadReason>, attempt: u32, at: u64) -> TailEvent {
        let (arming, key) = (Some(ArmingId([1; 8])), Bytes::from_static(b"a\n\xff"));
        TailEvent::of("a", 3, TimerEvent { what, reason, attempt, arming, at, key }, 17)
    }

    #[test]
    fn an_item_is_one_flat_json_object() {
        let line = |tailed| serde_json::to_string(&tailed).unwrap();
        let head = r#"{"topic":"a","partition":3,"at_ms":17,"key":"a\\n\\xff","id":"0101010101010101","#;
        for (told, end) in [
            (event(Ending::Started, None, 1, 15), r#""event":"started","attempt":1,"late_ms":2}"#),
            (event(Ending::Retry, None, 2, 99), r#""event":"retry","attempt":2,"next_ms":99}"#),
            (event(Ending::Again, None, 1, 99), r#""event":"again","next_ms":99}"#),
            (event(Ending::Done, None, 1, 0), r#""event":"done","attempt":1}"#),
            (event(Ending::Cancelled, None, 1, 0), r#""event":"cancelled"}"#),
            (
                event(Ending::Dead, Some(DeadReason::TooOld), 4, 0),
                r#""event":"dead","reason":"too_old","attempt":4}"#,
            ),
        ] {
            assert_eq!(line(TailItem::Event(told)), format!("{head}{end}"));
        }
        assert_eq!(line(TailItem::Missed(Missed::Counted { count: 2 })), r#"{"missed":"counted","count":2}"#);
    }

    #[test]
    fn events_are_described_for_people() {
        let shown = |what, reason, at| {
            event(what, reason, 4, at).shown(|ms| format!("{ms}ms"), |ms| format!("at {ms}"))
        };
        for (what, text) in [
            (Ending::Started, "attempt 4 claimed, 2ms late"),
            (Ending::Retry, "failed; attempt 4 at 15"),
            (Ending::Snoozed, "snoozed; attempt 4 at 15"),
            (Ending::Released, "released; attempt 4 at 15"),
            (Ending::Done, "done at attempt 4"),
            (Ending::Again, "done; again at 15"),
            (Ending::ReplacedByQueued, "failed; the queued arming at 15"),
            (Ending::Replaced, "replaced"),
            (Ending::Cancelled, "cancelled"),
        ] {
            assert_eq!(shown(what, None, 15), text);
        }
        assert_eq!(shown(Ending::Dead, Some(DeadReason::TooOld), 0), "dead at attempt 4: too_old");
    }

    #[test]
    fn lateness_counts_from_the_deadline_and_is_never_negative() {
        for (at, late_ms) in [(7, 10), (27, 0), (0, 0)] {
            assert_eq!(event(Ending::Started, None, 1, at).late_ms, Some(late_ms));
        }
    }
}
