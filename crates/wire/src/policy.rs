//! How keys that other programs write are treated: a choice of their topic.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::limits::{MAX_KEY, MAX_PAYLOAD, fit};
use crate::pattern::Pattern;
use crate::time::ms_ceil;

/// How long before its deadline a key whose value is kept is read again.
const REREAD: Duration = Duration::from_millis(250);

/// Keys in one touch, at most, and about so many bytes of their values.
const TOUCH_KEYS: usize = 500;
const TOUCH_BYTES: usize = 1 << 20;
/// Fields of hashes that it asks about, so that no script takes long: each takes a call.
const TOUCH_FIELDS: usize = 1000;

/// What of a value is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Up to how many bytes; 0: nothing.
    pub cap: usize,
    /// Whether values that are not strings are copied, as DUMP writes them.
    pub dumps: bool,
    /// Which fields of hashes are copied one by one.
    pub fields: Fields,
}

impl Capture {
    /// How many keys are touched at once.
    pub fn keys_in_touch(&self) -> usize {
        let keys = fit(TOUCH_FIELDS, TOUCH_KEYS, Some(self.fields.count()));
        fit(TOUCH_BYTES, keys, Some(self.cap))
    }
}

/// Fields of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// None: a hash is no more than any other type.
    #[default]
    None,
    /// All that there are.
    All,
    /// These, in order.
    Named(Arc<[String]>),
}

/// A call that reads keys names these, too.
pub const MOST_FIELDS: usize = 1000;

impl Fields {
    /// These, whatever their order.
    pub fn named(names: impl Iterator<Item = String>) -> Self {
        Self::Named(names.collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// How many a hash has of them, about: of all, as many as hashes mostly have.
    pub fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::All => 20,
            Self::Named(names) => names.len(),
        }
    }

    /// Returns whether there are some, and not too many, and none is too long.
    pub fn can_be(&self) -> bool {
        match self {
            Self::Named(names) => {
                (1..=MOST_FIELDS).contains(&names.len()) && names.iter().all(|name| name.len() <= MAX_KEY)
            }
            Self::None | Self::All => true,
        }
    }
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

/// What follows when a key is gone at its deadline and something may have been missed, so that nobody knows
/// whether it expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovered {
    /// Its handler runs, as `Expiry::Recovered`: also for keys that were deleted or
    /// renamed while nobody listened.
    #[default]
    Fire,
    /// It is forgotten: what expired while nobody listened is lost. Should another listener have heard it, and say so
    /// later, its handler runs without the value; together with [`Unenrolled::Ignore`] it does not run. A listener
    /// that hears nothing at all (`EventMode::Blind`) then fires nothing.
    Ignore,
}

/// How a key is written back for its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack(pub Counting);

/// Where the number of the attempt to come stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counting {
    Nowhere,
    /// In this field of a JSON object.
    In(String),
    /// It is the value.
    Alone,
}

impl WriteBack {
    /// The value as it was.
    pub fn unchanged() -> Self {
        Self(Counting::Nowhere)
    }

    /// The value as it was, but for this field of it: where the value is a JSON object, the number of the
    /// attempt to come stands there, as consumers that retry by hand expect it.
    pub fn counting_in(field: impl Into<String>) -> Self {
        Self(Counting::In(field.into()))
    }

    /// The number of the attempt to come, and nothing else: for keys whose value is such a count, as in
    /// `SET notice:42 1 EX 15`. It needs no `keep_values`.
    pub fn counting() -> Self {
        Self(Counting::Alone)
    }
}

/// How an attached topic's keys are treated; `Attached` sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as there
pub struct Policy {
    pub revision: u32,
    pub capture: Capture,
    pub unenrolled: Unenrolled,
    pub vanished: Vanished,
    pub recovered: Recovered,
    pub write_back: Option<WriteBack>,
    pub only_extended: bool,
    pub cap: usize,
    pub scan_rate: u32,
    pub scan_every: Duration,
    pub any_prefix: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            revision: 1,
            capture: Capture::default(),
            unenrolled: Unenrolled::default(),
            vanished: Vanished::default(),
            recovered: Recovered::default(),
            write_back: None,
            only_extended: false,
            cap: 1_000_000,
            scan_rate: 50_000,
            scan_every: Duration::from_secs(300),
            any_prefix: false,
        }
    }
}

/// Keys that a step of a scan looks at, at most.
const SCAN_STEP: u32 = 500;

/// At so many keys a second: how many a step of a scan looks at, and how long after the last the next begins.
pub fn scan_pace(rate: u32) -> (u32, Duration) {
    let step = (rate / 20).clamp(1, SCAN_STEP);
    (step, Duration::from_secs(1).mul_f64(f64::from(step) / f64::from(rate)))
}

impl Policy {
    /// Whether what is written back for a retry is made of the value that the key had.
    fn restores_values(&self) -> bool {
        self.write_back.as_ref().is_some_and(|how| how.0 != Counting::Alone)
    }

    /// Returns whether the name of the field that counts attempts is longer than this.
    fn counts_in_more_than(&self, most: usize) -> bool {
        matches!(&self.write_back, Some(WriteBack(Counting::In(field))) if field.len() > most)
    }

    /// Whether keys are written back for their retries.
    pub fn restores(&self) -> bool {
        self.write_back.is_some()
    }

    /// How many keys each of so many partitions remembers.
    pub fn cap_of_partition(&self, partitions: u32) -> usize {
        self.cap.div_ceil(partitions.max(1) as usize)
    }

    /// How long before its deadline a key is read again, in ms; 0: not.
    pub fn reread_ms(&self) -> u64 {
        if self.capture.cap > 0 { ms_ceil(REREAD) } else { 0 }
    }

    /// Refuses settings that can never work, or would hurt.
    pub fn check(&self, name: &str, pattern: &Pattern) -> Result<()> {
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
            (
                keeps_values || self.capture.fields == Fields::None,
                "keep_fields needs a cap: say keep_values, too",
            ),
            (
                self.capture.fields.can_be(),
                "keep_fields takes 1 to 1,000 names of at most 4 KiB; keep_all_fields takes all",
            ),
            (
                self.capture.fields == Fields::None || !self.restores(),
                "write_back cannot write a hash back of which fields are kept: say keep_dumps in place of keep_fields",
            ),
            (!self.counts_in_more_than(MAX_KEY), "write_back counts in a field whose name has at most 4 KiB"),
            (keeps_values || !self.restores_values(), "write_back needs the value: say keep_values, too"),
            (self.revision > 0, "revision must be at least 1"),
            (self.cap > 0, "cap must be at least 1"),
            (self.scan_rate > 0, "scan_rate must be at least 1 key a second"),
            (!self.scan_every.is_zero(), "scan_every must be more than zero"),
        ];
        Error::unless_kept(format_args!("attached topic {name}"), &rules)
    }
}
