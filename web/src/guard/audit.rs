//! A line of the log for each action through this server, with who did it, and for each wrong token.

use tracing::{info, warn};

use crate::guard::{Origin, Who};

/// An action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed<'a> {
    /// What was done: a verb of the API.
    pub(crate) verb: &'static str,
    pub(crate) topic: &'a str,
    /// Upon what: a key, or a filter's words.
    pub(crate) what: &'a str,
    pub(crate) outcome: &'a str,
    /// How many were acted upon.
    pub(crate) count: u64,
}

impl Who {
    /// Writes down that this was done.
    pub(crate) fn did(&self, deed: Deed<'_>) {
        let Deed { verb, topic, what, outcome, count } = deed;
        let (by, name, from, forwarded) = (self.by, self.name(), self.origin.from(), self.origin.forwarded());
        info!(target: "keylapse::audit", verb, topic, what, outcome, count, by, name, from, forwarded, "an action");
    }
}

impl Origin {
    pub(super) fn was_wrong(&self, by: &'static str) {
        let (from, forwarded) = (self.from(), self.forwarded());
        warn!(target: "keylapse::audit", by, from, forwarded, "a wrong token was shown");
    }

    pub(super) fn was_refused(&self, by: &'static str) {
        let (from, forwarded) = (self.from(), self.forwarded());
        warn!(target: "keylapse::audit", by, from, forwarded, "too many wrong tokens: the next of this address are refused, right or wrong");
    }
}
