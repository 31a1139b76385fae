//! Policies: how an attached topic treats keys that other programs write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::time::ms_ceil;
use crate::{MAX_KEY, MAX_PAYLOAD, fit};

/// A key whose value is kept is read again this long before its deadline.
const REREAD_BEFORE: Duration = Duration::from_millis(250);

/// Limits of a call that reads keys: their number, and roughly the bytes of their values.
const MAX_KEYS_PER_READ: usize = 500;
const MAX_BYTES_PER_READ: usize = 1 << 20;
/// The limit of hash fields in a call that reads keys. Each field costs a command, and no script may take long.
const MAX_FIELDS_PER_READ: usize = 1000;

/// Which parts of values are copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySpec {
    /// The maximum size of a copy, in bytes; 0 copies nothing.
    pub cap: usize,
    /// True if values of other types than strings are copied, in the format of DUMP.
    pub dumps: bool,
    /// The fields of hashes that are copied one by one.
    pub fields: FieldSelection,
}

impl CopySpec {
    /// Returns how many keys one call reads.
    pub fn keys_in_touch(&self) -> usize {
        let keys = fit(MAX_FIELDS_PER_READ, MAX_KEYS_PER_READ, Some(self.fields.count()));
        fit(MAX_BYTES_PER_READ, keys, Some(self.cap))
    }
}

/// A selection of the fields of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldSelection {
    /// No fields: hashes are treated as any other type.
    #[default]
    None,
    /// All fields.
    All,
    /// The fields with these names, which are sorted.
    Named(#[serde(serialize_with = "names", deserialize_with = "read_names")] Arc<[String]>),
}

fn names<S: Serializer>(names: &Arc<[String]>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(&**names)
}

/// Sorts the names, because the text may have them in any order.
fn read_names<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[String]>, D::Error> {
    Ok(BTreeSet::<String>::deserialize(from)?.into_iter().collect())
}

/// The limit of field names, because each call that reads keys sends all of them.
const MAX_NAMED_FIELDS: usize = 1000;

impl FieldSelection {
    /// Selects fields by their names, in any order.
    pub fn named(names: impl Iterator<Item = String>) -> Self {
        Self::Named(names.collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// Returns roughly how many selected fields a hash has. For all fields this is the size of a typical hash.
    pub fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::All => 20,
            Self::Named(names) => names.len(),
        }
    }

    /// Returns whether the number of names and their lengths are within the limits.
    fn is_valid(&self) -> bool {
        match self {
            Self::Named(names) => {
                (1..=MAX_NAMED_FIELDS).contains(&names.len())
                    && names.iter().all(|name| name.len() <= MAX_KEY)
            }
            Self::None | Self::All => true,
        }
    }
}

/// How an attached topic treats the end of a key: the parameter of `untracked`, `vanished` and `recovered`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// Run the handler.
    Fire,
    /// Forget the key.
    Ignore,
}

/// How a key is written back until its retry.
///
/// Pass it to `keylapse::Attached::write_back`. The values are those before the second attempt:
///
/// ```
/// # mod keylapse { pub mod attach { pub use keylapse_wire::policy::WriteBack; } }
/// use keylapse::attach::WriteBack;
///
/// let order = WriteBack::counting_in("attempt"); // {"cents":1999} becomes {"cents":1999,"attempt":2}
/// let counter = WriteBack::counting(); // any value becomes 2
/// assert_ne!(order, counter);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack(#[doc(hidden)] pub WriteBackValue);

/// The value of a key that is written back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteBackValue {
    /// No key is written back.
    #[default]
    #[serde(rename = "no")]
    Never,
    /// The value as it was.
    #[serde(rename = "unchanged")]
    Unchanged,
    /// The value with the number of the next attempt in this field of a JSON object.
    #[serde(rename = "counting_in")]
    AttemptInField(String),
    /// The number of the next attempt.
    #[serde(rename = "counting")]
    AttemptOnly,
}

impl WriteBack {
    /// Writes the value back as it was.
    pub fn unchanged() -> Self {
        Self(WriteBackValue::Unchanged)
    }

    /// Writes the value back with the number of the next attempt in this field, if the value is a JSON object. Consumers
    /// that count their retries themselves expect the number there. Any other value is written back as it was.
    pub fn counting_in(field: impl Into<String>) -> Self {
        Self(WriteBackValue::AttemptInField(field.into()))
    }

    /// Writes back the number of the next attempt alone. Use it for keys whose value is a count of attempts, as in
    /// `SET notice:42 1 EX 15`. It works without `keep_values`.
    pub fn counting() -> Self {
        Self(WriteBackValue::AttemptOnly)
    }
}

/// How an attached topic treats its keys. `Attached` sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The revision of `topic`, from 1.
    pub revision: u32,
    /// The settings that all listeners of the topic share.
    pub topic: TopicPolicy,
    /// True if no program ever shortens a TTL.
    pub only_extended: bool,
    /// The maximum number of tracked keys.
    pub cap: usize,
    /// How many keys a scan examines per second.
    pub scan_rate: u32,
    /// The pause between the end of a scan and the start of the next.
    pub scan_every: Duration,
    /// True if the pattern may have no literal prefix.
    pub any_prefix: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            revision: 1,
            topic: TopicPolicy::default(),
            only_extended: false,
            cap: 1_000_000,
            scan_rate: 50_000,
            scan_every: Duration::from_secs(300),
            any_prefix: false,
        }
    }
}

/// The settings that all listeners of a topic must agree on. Redis holds them as JSON, which people can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicPolicy {
    /// The version of the format. A newer program has written a text with another version or with unknown fields.
    pub v: u32,
    /// The treatment of expiries of untracked keys.
    pub untracked: Treatment,
    /// The treatment of keys that are gone at their deadlines and did not expire.
    pub vanished: Treatment,
    /// The treatment of keys that are gone when events may have been missed.
    pub recovered: Treatment,
    /// The maximum size of a copied value, in bytes; 0 copies none.
    pub values: usize,
    /// True if values of other types than strings are copied, in the format of DUMP.
    pub dumps: bool,
    /// The fields of hashes that are copied one by one.
    pub fields: FieldSelection,
    /// How keys are written back until their retries.
    pub write_back: WriteBackValue,
}

impl Default for TopicPolicy {
    fn default() -> Self {
        Self {
            v: Self::VERSION,
            untracked: Treatment::Fire,
            vanished: Treatment::Ignore,
            recovered: Treatment::Fire,
            values: 0,
            dumps: false,
            fields: FieldSelection::None,
            write_back: WriteBackValue::Never,
        }
    }
}

impl TopicPolicy {
    /// The version that this library writes.
    const VERSION: u32 = 1;

    /// Returns the JSON text that Redis holds.
    pub fn text(&self) -> String {
        Value::Object(self.settings()).to_string()
    }

    /// Parses the JSON text that Redis holds.
    ///
    /// # Errors
    /// If this version of the library cannot have written the text.
    pub fn read(text: &[u8]) -> Result<Self> {
        let unreadable = |why: &str| Error::new(ErrorKind::WireVersion, format!("it cannot be read: {why}"));
        let read: Self = serde_json::from_slice(text).map_err(|error| unreadable(&error.to_string()))?;
        match read.v {
            Self::VERSION if read.values <= MAX_PAYLOAD && read.fields.is_valid() => Ok(read),
            Self::VERSION => {
                Err(unreadable("it keeps larger values or more fields than the library supports"))
            }
            other => {
                let known = Self::VERSION;
                Err(unreadable(&format!("it has version {other}, and this library reads version {known}")))
            }
        }
    }

    /// Lists the settings that differ. Returns an empty text if all are equal.
    pub fn differences(&self, other: &Self) -> String {
        let (ours, theirs) = (self.settings(), other.settings());
        let differing = ours.iter().filter_map(|(name, here)| {
            let there = theirs.get(name).filter(|there| *there != here)?;
            Some(format!("{name} is {here} here and {there} there"))
        });
        differing.collect::<Vec<_>>().join(", ")
    }

    fn settings(&self) -> serde_json::Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            _ => serde_json::Map::new(), // a struct with named fields is always an object
        }
    }
}

/// The maximum number of keys that a step of a scan examines.
const MAX_KEYS_PER_SCAN_STEP: u32 = 500;

/// Returns how many keys a step of a scan examines, and the time between the starts of two steps, for `rate` keys a second.
pub fn scan_pace(rate: u32) -> (u32, Duration) {
    let step = (rate / 20).clamp(1, MAX_KEYS_PER_SCAN_STEP);
    (step, Duration::from_secs(1).mul_f64(f64::from(step) / f64::from(rate)))
}

impl Policy {
    /// Returns which parts of values are copied.
    pub fn capture(&self) -> CopySpec {
        let TopicPolicy { values, dumps, fields, .. } = &self.topic;
        CopySpec { cap: *values, dumps: *dumps, fields: fields.clone() }
    }

    /// Returns whether keys are written back until their retries.
    pub(crate) fn restores(&self) -> bool {
        self.topic.write_back != WriteBackValue::Never
    }

    /// Returns the maximum number of tracked keys of each partition.
    pub(crate) fn cap_of_partition(&self, partitions: u32) -> usize {
        self.cap.div_ceil(partitions.max(1) as usize)
    }

    /// Returns how long before its deadline a key is read again, in ms; 0 if it is not.
    pub(crate) fn reread_ms(&self) -> u64 {
        if self.topic.values > 0 { ms_ceil(REREAD_BEFORE) } else { 0 }
    }

    /// Returns an error for settings that cannot work, and for a pattern that would make scans read the whole database.
    pub fn check(&self, name: &str, pattern: &Pattern) -> Result<()> {
        if pattern.literal_prefix().is_empty() && !self.any_prefix {
            return Err(Error::invalid(format!(
                "attached topic {name}: pattern {pattern} has no literal prefix, so a scan would read every key of the \
                 database: give the keys a prefix, or set allow_any_prefix"
            )));
        }
        let TopicPolicy { values, dumps, fields, .. } = &self.topic;
        let keeps_values = *values > 0;
        // Except for a bare count, the written-back value derives from the value that the key had.
        let restores_values = self.restores() && self.topic.write_back != WriteBackValue::AttemptOnly;
        let field_is_too_long =
            matches!(&self.topic.write_back, WriteBackValue::AttemptInField(field) if field.len() > MAX_KEY);
        let rules = [
            (*values <= MAX_PAYLOAD, "keep_values must be at most 8 MiB"),
            (keeps_values || !dumps, "keep_dumps needs a size limit: call keep_values, too"),
            (
                keeps_values || *fields == FieldSelection::None,
                "keep_fields needs a size limit: call keep_values, too",
            ),
            (
                fields.is_valid(),
                "keep_fields takes 1 to 1,000 names of at most 4 KiB; keep_all_fields takes all",
            ),
            (
                *fields == FieldSelection::None || !self.restores(),
                "write_back cannot restore a hash from its fields: call keep_dumps in place of keep_fields",
            ),
            (!field_is_too_long, "the name of the field in which write_back counts must have at most 4 KiB"),
            (keeps_values || !restores_values, "write_back needs the value: call keep_values, too"),
            (self.revision > 0, "revision must be at least 1"),
            (self.cap > 0, "cap must be at least 1"),
            (self.scan_rate > 0, "scan_rate must be at least 1 key a second"),
            (!self.scan_every.is_zero(), "scan_every must be more than zero"),
        ];
        Error::unless_kept(format_args!("attached topic {name}"), &rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd() -> TopicPolicy {
        TopicPolicy {
            untracked: Treatment::Ignore,
            vanished: Treatment::Fire,
            recovered: Treatment::Ignore,
            values: 4096,
            dumps: true,
            fields: FieldSelection::named(["b c", "a"].map(str::to_owned).into_iter()),
            write_back: WriteBackValue::AttemptInField("at\"tempt".into()),
            ..TopicPolicy::default()
        }
    }

    /// The texts are those that programs of each version have written.
    #[test]
    fn each_setting_has_its_word_and_is_read_again() {
        let with =
            |write_back: WriteBackValue, fields: FieldSelection| TopicPolicy { write_back, fields, ..odd() };
        for (policy, fields, back) in [
            (odd(), r#"{"named":["a","b c"]}"#, r#"{"counting_in":"at\"tempt"}"#),
            (with(WriteBackValue::Never, FieldSelection::None), r#""none""#, r#""no""#),
            (with(WriteBackValue::Unchanged, FieldSelection::All), r#""all""#, r#""unchanged""#),
            (with(WriteBackValue::AttemptOnly, FieldSelection::None), r#""none""#, r#""counting""#),
        ] {
            let text = format!(
                r#"{{"dumps":true,"fields":{fields},"recovered":"ignore","untracked":"ignore","v":1,"values":4096,"vanished":"fire","write_back":{back}}}"#
            );
            assert_eq!(policy.text(), text);
            assert_eq!(TopicPolicy::read(text.as_bytes()).expect("it can be read"), policy);
        }
    }

    #[test]
    fn the_example_of_the_wire_is_what_is_written() {
        let policy = TopicPolicy { values: 4096, ..TopicPolicy::default() };
        let page = include_str!("../../../docs/internals/wire.md");
        assert!(page.contains(&format!("\n{}\n", policy.text())));
    }

    #[test]
    fn what_differs_is_named_with_both_sides() {
        let (plain, odd) = (TopicPolicy::default(), odd());
        assert_eq!(plain.differences(&plain), "");
        let other = TopicPolicy { values: 8, ..plain.clone() };
        assert_eq!(plain.differences(&other), "values is 0 here and 8 there");
        for setting in ["untracked", "vanished", "recovered", "values", "dumps", "fields", "write_back"] {
            assert!(plain.differences(&odd).contains(&format!("{setting} is ")), "{setting}");
        }
    }

    #[test]
    fn what_a_newer_program_has_written_is_refused() {
        let text = odd().text();
        for (from, to, says) in [
            ("\"v\":1", "\"v\":2", "version 2"),
            ("{", "{\"moon\":1,", "moon"),
            ("\"untracked\":\"ignore\"", "\"untracked\":\"ask\"", "ask"),
            ("\"values\":4096", "\"values\":9000000000", "larger"),
            ("[\"a\",\"b c\"]", "[]", "fields"),
            ("{", "", "line 1"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            let error = TopicPolicy::read(other.as_bytes()).expect_err(&other);
            assert_eq!(error.kind(), ErrorKind::WireVersion);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
