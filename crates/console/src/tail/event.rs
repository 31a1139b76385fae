//! What somebody who looks on is told.

use bytes::Bytes;
use serde::Serialize;

use crate::id::ArmingId;
use crate::text;
use crate::wire::DeadReason;
use crate::wire::calls::ended::Ending;
use crate::wire::calls::tail::{Deed, ToldOf};

/// What comes of a [`Tail`](super::Tail).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Tailed {
    /// A start or an end.
    Event(TailEvent),
    /// About here, some were not heard.
    Missed(Missed),
}

/// The start or the end of an attempt, or the end of a timer that waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TailEvent {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// When, in ms since 1970 by the server's clock.
    pub at_ms: u64,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The arming; none where that is not known: that is mostly so of what is done.
    #[serde(serialize_with = "text::id_as_text")]
    pub id: Option<ArmingId>,
    /// What happened.
    #[serde(flatten)]
    pub what: TailWhat,
}

/// What happened to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TailWhat {
    /// A listener has taken it, and starts its attempt once it is due.
    Started {
        /// Which attempt, from 1.
        attempt: u32,
        /// How long after its deadline it was taken, in ms.
        late_ms: u64,
    },
    /// Its attempt has failed, and there will be another.
    Retry {
        /// The attempt to come.
        attempt: u32,
        /// When, in ms since 1970.
        next_ms: u64,
    },
    /// Its attempt was put off.
    Snoozed {
        /// The attempt to come.
        attempt: u32,
        /// When, in ms since 1970.
        next_ms: u64,
    },
    /// Its attempt was handed back, as a listener has stopped.
    Released {
        /// The attempt to come.
        attempt: u32,
        /// Its deadline, in ms since 1970.
        next_ms: u64,
    },
    /// It is done, or was dropped by its handler.
    Done {
        /// The attempt that has ended.
        attempt: u32,
    },
    /// It is done, and runs again as another arming.
    Again {
        /// When, in ms since 1970.
        next_ms: u64,
    },
    /// Its attempt has failed, and an arming that was kept for later has taken its place.
    GaveWay {
        /// When that is due, in ms since 1970.
        next_ms: u64,
    },
    /// It was armed anew before it ran.
    Replaced,
    /// It was cancelled.
    Cancelled,
    /// It is a dead letter.
    Dead {
        /// Why.
        #[serde(serialize_with = "reason_as_text")]
        reason: DeadReason,
        /// The attempt that was the last, or was to come.
        attempt: u32,
    },
}

/// Why something was not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "missed", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Missed {
    /// So many, of a call that had more to tell than a message can say, or since whoever looks on did not keep up.
    Counted {
        /// How many.
        count: u64,
    },
    /// Nobody knows how many: a connection was lost, or a partition has moved.
    Disconnected,
}

impl TailWhat {
    pub(super) fn of(told: &ToldOf, now: u64) -> Self {
        let ToldOf { attempt, at: next_ms, .. } = *told;
        match told.what {
            Deed::Started => {
                // A deadline that cannot be read is no lateness.
                let late_ms = if next_ms == 0 { 0 } else { now.saturating_sub(next_ms) };
                Self::Started { attempt, late_ms }
            }
            Deed::Retry => Self::Retry { attempt, next_ms },
            Deed::Snoozed => Self::Snoozed { attempt, next_ms },
            Deed::Released => Self::Released { attempt, next_ms },
            Deed::Ended(Ending::Done) => Self::Done { attempt },
            Deed::Ended(Ending::Again) => Self::Again { next_ms },
            Deed::Ended(Ending::GaveWay) => Self::GaveWay { next_ms },
            Deed::Ended(Ending::Replaced) => Self::Replaced,
            Deed::Ended(Ending::Cancelled) => Self::Cancelled,
            Deed::Ended(Ending::Dead(reason)) => Self::Dead { reason, attempt },
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks
fn reason_as_text<S: serde::Serializer>(reason: &DeadReason, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_one_flat_line() {
        let event = |what| TailEvent {
            topic: "a".into(),
            partition: 3,
            at_ms: 17,
            key: Bytes::from_static(b"a\n\xff"),
            id: Some(ArmingId([1; 8])),
            what,
        };
        let line = |tailed| serde_json::to_string(&tailed).unwrap();
        let head = r#"{"topic":"a","partition":3,"at_ms":17,"key":"a\\n\\xff","id":"0101010101010101","#;
        for (what, end) in [
            (TailWhat::Started { attempt: 1, late_ms: 2 }, r#""what":"started","attempt":1,"late_ms":2}"#),
            (TailWhat::Cancelled, r#""what":"cancelled"}"#),
            (
                TailWhat::Dead { reason: DeadReason::TooOld, attempt: 4 },
                r#""what":"dead","reason":"too_old","attempt":4}"#,
            ),
        ] {
            assert_eq!(line(Tailed::Event(event(what))), format!("{head}{end}"));
        }
        assert_eq!(line(Tailed::Missed(Missed::Counted { count: 2 })), r#"{"missed":"counted","count":2}"#);
    }

    #[test]
    fn lateness_counts_from_the_deadline_and_is_never_negative() {
        let told = |at| ToldOf { what: Deed::Started, attempt: 1, arming: None, at, key: Bytes::new() };
        for (at, late_ms) in [(90, 10), (110, 0), (0, 0)] {
            assert_eq!(TailWhat::of(&told(at), 100), TailWhat::Started { attempt: 1, late_ms });
        }
    }
}
