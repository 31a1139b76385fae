//! What became of an action, in words.

use crate::wire::{Arming, Cancelled, Replayed, Rescheduled};

/// What became of an action upon a timer, a letter or a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Became {
    /// Whether it was done.
    pub was_done: bool,
    /// A word for programs.
    pub code: &'static str,
    /// What to say of it.
    pub says: &'static str,
}

const fn done(code: &'static str, says: &'static str) -> Became {
    Became { was_done: true, code, says }
}

const fn left(code: &'static str, says: &'static str) -> Became {
    Became { was_done: false, code, says }
}

const CANCELLED: Became = done("cancelled", "cancelled: it will not run");
const TAKEN: Became =
    done("cancelled_claimed", "cancelled: a listener had taken it ahead of its deadline and is told");
const STOPPED: Became =
    done("cancelled_running", "cancelled: an attempt was running, is told to stop, and can settle nothing");
const DUE_NOW: Became = done("due_now", "due now");
const MOVED: Became = done("rescheduled", "rescheduled");
const RUNNING: Became = left("running", "unchanged: an attempt is running");
const REPLAYED: Became = done("replayed", "replayed: its attempts start over");
const HAS_TIMER: Became = left("has_a_timer", "left alone: the key has a timer");
const UNREADABLE: Became = left("unreadable", "left alone: its record cannot be read");
const DROPPED: Became = done("dropped", "dropped");
const ARMED: Became = done("armed", "armed");
const REPLACED: Became = done("replaced", "replaced the timer that was there");
const AFTER_RUNNING: Became = done("after_running", "armed behind the attempt that is running");
const SUPERSEDED: Became = left("superseded", "superseded: it has been cancelled or replaced since");

/// Why no answer is missing here: the manifest names one version of each crate.
const ONE_VERSION: &str = "the crates of keylapse have one version";

impl Became {
    /// The topic is paused.
    pub const PAUSED: Self = done("paused", "paused: attempts that run go on, and no others begin");
    /// The topic is resumed.
    pub const RESUMED: Self = done("resumed", "resumed: what has become due runs now");
    /// The listeners of a topic were asked to call one of its destinations.
    pub const ASKED: Self =
        done("asked", "asked: its listeners call it now, and report within five seconds how that went");
    /// The key has no timer.
    pub const NOT_ARMED: Self = left("not_armed", "not armed: there is no timer of this key");
    /// Somebody else was quicker with a letter.
    pub const GONE: Self = left("gone", "the letter is gone: replayed, dropped or trimmed meanwhile");

    const ALL: [Self; 19] = [
        Self::NOT_ARMED,
        CANCELLED,
        TAKEN,
        STOPPED,
        DUE_NOW,
        MOVED,
        RUNNING,
        REPLAYED,
        HAS_TIMER,
        UNREADABLE,
        DROPPED,
        ARMED,
        REPLACED,
        AFTER_RUNNING,
        SUPERSEDED,
        Self::PAUSED,
        Self::RESUMED,
        Self::ASKED,
        Self::GONE,
    ];

    /// Of a key that was to be armed.
    pub fn of_arm(arming: &Arming) -> Self {
        match arming {
            Arming::Armed(_) => ARMED,
            Arming::Replaced(_) => REPLACED,
            Arming::AfterRunning(_) => AFTER_RUNNING,
            Arming::Exists => HAS_TIMER,
            Arming::Superseded => SUPERSEDED,
            _ => unreachable!("{ONE_VERSION}"),
        }
    }

    /// Of a cancellation.
    pub fn of_cancel(cancelled: Cancelled) -> Self {
        match cancelled {
            Cancelled::NotArmed => Self::NOT_ARMED,
            Cancelled::Cancelled => CANCELLED,
            Cancelled::Claimed => TAKEN,
            Cancelled::InFlight => STOPPED,
            _ => unreachable!("{ONE_VERSION}"),
        }
    }

    /// Of a timer that was to run now.
    pub fn of_run_now(moved: Rescheduled) -> Self {
        match moved {
            Rescheduled::Rescheduled(_) => DUE_NOW,
            other => Self::of_move(other),
        }
    }

    /// Of a timer that was to be moved.
    pub fn of_move(moved: Rescheduled) -> Self {
        match moved {
            Rescheduled::Rescheduled(_) => MOVED,
            Rescheduled::InFlight => RUNNING,
            Rescheduled::NotArmed => Self::NOT_ARMED,
            _ => unreachable!("{ONE_VERSION}"),
        }
    }

    /// Of a letter that was to be replayed.
    pub fn of_replay(replayed: Replayed) -> Self {
        match replayed {
            Replayed::Replayed => REPLAYED,
            Replayed::Exists => HAS_TIMER,
            Replayed::Unreadable => UNREADABLE,
            Replayed::Gone => Self::GONE,
            _ => unreachable!("{ONE_VERSION}"),
        }
    }

    /// Of a letter that was to be dropped, by whether it was there.
    pub fn of_drop(was_there: bool) -> Self {
        if was_there { DROPPED } else { Self::GONE }
    }

    /// The one with this word.
    pub fn by_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|became| became.code == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_word_of_its_own() {
        for became in Became::ALL {
            assert_eq!(Became::by_code(became.code), Some(became));
        }
        assert_eq!(Became::by_code("<script>"), None);
    }
}
