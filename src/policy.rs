//! How keys that other programs write are treated: a choice of their topic.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::limits::MAX_PAYLOAD;
use crate::pattern::Pattern;
use crate::time::ms_ceil;

/// How long before its deadline a key whose value is kept is read again.
const REREAD: Duration = Duration::from_millis(250);

/// What of a value is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Up to how many bytes; 0: nothing.
    pub cap: usize,
    /// Whether values that are not strings are copied, as DUMP writes them.
    pub dumps: bool,
}

/// What an expiry leads to whose deadline had not been read before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unenrolled {
    /// Its handler runs, without a value and without a known deadline. Whoever may PUBLISH on the channel
    /// of expired events can make a handler run this way.
    #[default]
    Fire,
    /// It is ignored: an expiry counts only if the key's deadline was read, and has passed. What expires
    /// sooner than it can be read is lost.
    Ignore,
}

/// What follows when a key is gone at its deadline though nothing was missed, and it did not expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vanished {
    /// It was deleted or evicted, and is forgotten.
    #[default]
    Ignore,
    /// Its handler runs: also for keys that their writer has deleted, unless the deletion was heard.
    Fire,
}

/// How a key is written back for its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// The field of a JSON object that counts attempts.
    pub(crate) field: Option<String>,
}

impl WriteBack {
    /// The value as it was.
    pub fn unchanged() -> Self {
        Self { field: None }
    }

    /// The value as it was, but for this field of it: where the value is a JSON object, the number of the
    /// attempt to come stands there, as consumers that retry by hand expect it.
    pub fn counting_in(field: impl Into<String>) -> Self {
        Self { field: Some(field.into()) }
    }
}

/// How an attached topic's keys are treated; [`Attached`](crate::Attached) sets it.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // as there
pub struct Policy {
    pub capture: Capture,
    pub unenrolled: Unenrolled,
    pub vanished: Vanished,
    pub write_back: Option<WriteBack>,
    pub cap: usize,
    pub scan_rate: u32,
    pub scan_every: Duration,
    pub any_prefix: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            capture: Capture::default(),
            unenrolled: Unenrolled::default(),
            vanished: Vanished::default(),
            write_back: None,
            cap: 1_000_000,
            scan_rate: 50_000,
            scan_every: Duration::from_secs(300),
            any_prefix: false,
        }
    }
}

impl Policy {
    /// Whether keys are written back for their retries.
    pub fn restores(&self) -> bool {
        self.write_back.is_some()
    }

    /// How many keys each of so many partitions remembers.
    pub(crate) fn cap_of_partition(&self, partitions: u32) -> usize {
        self.cap.div_ceil(partitions.max(1) as usize)
    }

    /// How long before its deadline a key is read again, in ms; 0: not.
    pub(crate) fn reread_ms(&self) -> u64 {
        if self.capture.cap > 0 { ms_ceil(REREAD) } else { 0 }
    }

    /// Refuses settings that can never work, or would hurt.
    pub(crate) fn check(&self, name: &str, pattern: &Pattern) -> Result<()> {
        if pattern.literal_prefix().is_empty() && !self.any_prefix {
            return Err(Error::invalid(format!(
                "attached topic {name}: pattern {pattern} has no literal prefix, so that every key of the database \
                 would have to be looked at; give its keys a prefix, or say Attached::allow_any_prefix"
            )));
        }
        let keeps_values = self.capture.cap > 0;
        let rules = [
            (self.capture.cap <= MAX_PAYLOAD, "keep_values must be at most 8 MiB"),
            (keeps_values || !self.capture.dumps, "keep_dumps needs a cap: say keep_values, too"),
            (keeps_values || !self.restores(), "write_back needs the value: say keep_values, too"),
            (self.cap > 0, "cap must be at least 1"),
            (self.scan_rate > 0, "scan_rate must be at least 1 key a second"),
            (!self.scan_every.is_zero(), "scan_every must be more than zero"),
        ];
        Error::unless_kept(&format!("attached topic {name}"), &rules)
    }
}
