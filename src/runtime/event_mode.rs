//! What a listener can hear of attached keys, and what that costs.

use std::fmt;

use tracing::{info, warn};

/// What a listener can hear of keys that other programs write. It is proven by canaries, not read from
/// the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventMode {
    /// Nothing is known yet.
    #[default]
    Starting,
    /// Nothing is heard (flags cleared, CONFIG forbidden, RESP2, a broken subscription): keys are found by
    /// scanning and looked at after their deadlines. A key that expires before a scan has found it is lost,
    /// and a deleted key cannot be told from an expired one.
    Blind,
    /// Expiries are heard (`Ex`): each is fired. Keys are found by scanning; a key that expires before a
    /// scan has found it fires without its value.
    Expired,
    /// Expiries and changes of deadlines are heard (`KExg$`): keys are enrolled as they are written, and
    /// deletions are known as such.
    Changes,
    /// Expiries and some of the changes are heard (`KExg` or `KEx$`): scans find the rest.
    SomeChanges,
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
            Self::Blind => "blind",
            Self::Expired => "expired",
            Self::Changes => "changes",
            Self::SomeChanges => "some_changes",
        }
    }

    pub(crate) fn announce(self) {
        let mode = self.as_str();
        match self {
            Self::Starting => {}
            Self::Blind => warn!(
                mode,
                "attached keys: nothing is heard. Keys are found by scanning alone, and one that expires before it \
                 is found is lost; deleted keys fire like expired ones. notify-keyspace-events Ex would change that"
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
        }
    }
}

impl fmt::Display for EventMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
