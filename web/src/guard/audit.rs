//! What was done through this server, and by whom: a line of the log for each action.

use tracing::info;

use crate::guard::Who;

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
        let from = self.from.map(|from| from.to_string()).unwrap_or_default();
        info!(target: "keylapse::audit", verb, topic, what, outcome, count, by = self.by, from, "an action");
    }
}
