//! How the keys of an attached topic are treated: chosen once, when the listener is built.

use std::ops::Deref;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::pattern::Pattern;
use crate::wire::attached::{Capture, Treatment};
use crate::topic::{MAX_PAYLOAD, Topic};

/// How long before its deadline a key whose value is kept is read again.
const REREAD: Duration = Duration::from_millis(250);

/// A topic whose keys other programs write, and how they are treated.
///
/// [`ListenerBuilder::attach`](crate::ListenerBuilder::attach) takes a [`Topic`] as it is; this is for those
/// who want something else than the defaults.
///
/// ```
/// use keylapse::{Attached, Topic};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Order { cents: u64 }
/// let unpaid = Attached::new(Topic::<Order>::new("order:unpaid:{id}")?)
///     .keep_values(4096) // the handler gets the value of the expired key, up to 4 KiB
///     .cap(50_000);
/// # Ok::<(), keylapse::Error>(())
/// ```
///
/// It is a [`Topic`] besides: dead letters, for one, are asked for with it.
#[derive(Clone, Debug)]
pub struct Attached<T>(Topic<T>);

/// What becomes of an expiry whose deadline had not been read before.
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

/// What becomes of a key that is gone at its deadline though nothing was missed, and it did not expire.
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

/// Everything of [`Attached`] but the topic.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) capture: Capture,
    pub(crate) unenrolled: Unenrolled,
    pub(crate) vanished: Vanished,
    pub(crate) write_back: Option<WriteBack>,
    pub(crate) cap: usize,
    pub(crate) scan_rate: u32,
    pub(crate) scan_every: Duration,
    any_prefix: bool,
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

impl<T> Attached<T> {
    /// With the defaults: no values are kept, expiries of unknown keys fire, deleted keys do not.
    pub fn new(mut topic: Topic<T>) -> Self {
        topic.config.attach = Some(Policy::default());
        topic.config.triggers = false;
        Self(topic)
    }

    fn with(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(self.0.config.attach.get_or_insert_default());
        self
    }

    pub(crate) fn into_topic(self) -> Topic<T> {
        self.0
    }

    /// Keeps a copy of each string value of up to so many bytes, at most 8 MiB, so that the handler gets
    /// the value of the expired key. It is read when the key is found, and again a quarter of a second
    /// before the deadline. Default: no copies. Costs the bytes of each value in Redis once more.
    #[must_use]
    pub fn keep_values(self, cap: usize) -> Self {
        self.with(|policy| policy.capture.cap = cap)
    }

    /// Also keeps copies of hashes, lists, sets and streams, as the server's DUMP writes them, if they
    /// are no larger than the cap. Making a dump costs the server time in proportion to the value.
    #[must_use]
    pub fn keep_dumps(self) -> Self {
        self.with(|policy| policy.capture.dumps = true)
    }

    /// What becomes of expiries of keys that were not enrolled. Default: they fire.
    #[must_use]
    pub fn unenrolled(self, policy: Unenrolled) -> Self {
        self.with(|policy| policy.unenrolled = policy)
    }

    /// What becomes of keys that are gone and did not expire. Default: they are forgotten.
    #[must_use]
    pub fn vanished(self, policy: Vanished) -> Self {
        self.with(|policy| policy.vanished = policy)
    }

    /// Writes the key back when its handler fails, with the time to live of the retry, if the name is
    /// free. Default: retries live in keylapse's index alone.
    ///
    /// **A key that is written back exists again**: a session is valid again, a lock is held again, an
    /// unpaid order can be paid again. A key that its writer has created meanwhile is never touched; then
    /// the retry gives way to it. Needs [`keep_values`](Self::keep_values).
    #[must_use]
    pub fn write_back(self, how: WriteBack) -> Self {
        self.with(|policy| policy.write_back = Some(how))
    }

    /// How many keys are remembered at most. Beyond, keys are not enrolled, which is logged and counted;
    /// their expiries are heard all the same. Default: 1,000,000.
    #[must_use]
    pub fn cap(self, keys: usize) -> Self {
        self.with(|policy| policy.cap = keys)
    }

    /// How many keys of the database a scan looks at in a second, ours or not. Default: 50,000.
    #[must_use]
    pub fn scan_rate(self, keys_per_second: u32) -> Self {
        self.with(|policy| policy.scan_rate = keys_per_second)
    }

    /// How long after a scan has ended the next begins; there is also one at the start and after each
    /// gap. Default: 5 min.
    #[must_use]
    pub fn scan_every(self, pause: Duration) -> Self {
        self.with(|policy| policy.scan_every = pause)
    }

    /// Allows a pattern without a literal prefix: then each expiry, each change and each key of the
    /// database reaches every listener.
    #[must_use]
    pub fn allow_any_prefix(self) -> Self {
        self.with(|policy| policy.any_prefix = true)
    }
}

impl<T> Deref for Attached<T> {
    type Target = Topic<T>;

    fn deref(&self) -> &Topic<T> {
        &self.0
    }
}

impl<T> From<Topic<T>> for Attached<T> {
    fn from(topic: Topic<T>) -> Self {
        Self::new(topic)
    }
}

impl Policy {
    /// How the store is to treat the keys of one of so many partitions.
    pub(crate) fn treatment(&self, partitions: u32) -> Treatment {
        Treatment {
            unenrolled: self.unenrolled == Unenrolled::Fire,
            restores: self.write_back.is_some(),
            cap: self.cap.div_ceil(partitions.max(1) as usize),
            reread_ms: if self.capture.cap > 0 { crate::time::ms_ceil(REREAD) } else { 0 },
        }
    }

    /// Refuses settings that can never work, or would hurt.
    pub(crate) fn check(&self, name: &str, pattern: &Pattern) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid(format!("attached topic {name}: {what}")));
        if pattern.literal_prefix().is_empty() && !self.any_prefix {
            return refuse(format!(
                "pattern {pattern} has no literal prefix, so that every key of the database would have to be \
                 looked at; give its keys a prefix, or say Attached::allow_any_prefix"
            ));
        }
        if self.capture.cap > MAX_PAYLOAD {
            return refuse("keep_values must be at most 8 MiB".into());
        }
        if self.capture.dumps && self.capture.cap == 0 {
            return refuse("keep_dumps needs a cap: say keep_values, too".into());
        }
        if self.write_back.is_some() && self.capture.cap == 0 {
            return refuse("write_back needs the value: say keep_values, too".into());
        }
        if self.cap == 0 {
            return refuse("cap must be at least 1".into());
        }
        if self.scan_rate == 0 {
            return refuse("scan_rate must be at least 1 key a second".into());
        }
        if self.scan_every.is_zero() {
            return refuse("scan_every must be more than zero".into());
        }
        Ok(())
    }
}
