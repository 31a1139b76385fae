//! What became of a timer or a topic, in words: for the commands and for `top`.

use std::time::SystemTime;

use keylapse::{Cancelled, Rescheduled};

const NOT_ARMED: &str = "not armed: there is no timer of this key";
pub(super) const PAUSED: &str = "paused: attempts that run go on, and no others begin";
pub(super) const RESUMED: &str = "resumed: what has become due runs now";

/// Whether anything was withdrawn, and what to say of it.
pub(super) fn cancelled(cancelled: Cancelled) -> (bool, &'static str) {
    match cancelled {
        Cancelled::NotArmed => (false, NOT_ARMED),
        Cancelled::Cancelled => (true, "cancelled: it will not run"),
        Cancelled::Claimed => (true, "cancelled: a listener had taken it ahead of its deadline and is told"),
        _ => (true, "cancelled: an attempt was running, is told to stop, and can settle nothing"),
    }
}

/// When it is due now, or why nothing was moved.
pub(super) fn moved(moved: Rescheduled) -> Result<SystemTime, &'static str> {
    match moved {
        Rescheduled::Rescheduled(at) => Ok(at),
        Rescheduled::InFlight => Err("unchanged: an attempt is running"),
        _ => Err(NOT_ARMED),
    }
}
