//! How keys that other programs write are treated: a choice of their topic.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::time::ms_ceil;
use crate::{MAX_KEY, MAX_PAYLOAD, fit};

/// How long before its deadline a key whose value is kept is read again.
const REREAD: Duration = Duration::from_millis(250);

/// Keys in one touch, at most, and about so many bytes of their values.
const TOUCH_KEYS: usize = 500;
const TOUCH_BYTES: usize = 1 << 20;
/// Fields of hashes that it asks about, so that no script takes long: each takes a call.
const TOUCH_FIELDS: usize = 1000;

/// What of a value is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySpec {
    /// Up to how many bytes; 0: nothing.
    pub cap: usize,
    /// Whether values that are not strings are copied, as DUMP writes them.
    pub dumps: bool,
    /// Which fields of hashes are copied one by one.
    pub fields: FieldSelection,
}

impl CopySpec {
    /// How many keys are touched at once.
    pub fn keys_in_touch(&self) -> usize {
        let keys = fit(TOUCH_FIELDS, TOUCH_KEYS, Some(self.fields.count()));
        fit(TOUCH_BYTES, keys, Some(self.cap))
    }
}

/// Fields of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldSelection {
    /// None: a hash is no more than any other type.
    #[default]
    None,
    /// All that there are.
    All,
    /// These, in order.
    Named(#[serde(serialize_with = "names", deserialize_with = "read_names")] Arc<[String]>),
}

fn names<S: Serializer>(names: &Arc<[String]>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(&**names)
}

/// Whatever order they stand in.
fn read_names<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[String]>, D::Error> {
    Ok(BTreeSet::<String>::deserialize(from)?.into_iter().collect())
}

/// A call that reads keys names these, too.
const MAX_NAMED_FIELDS: usize = 1000;

impl FieldSelection {
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
    fn can_be(&self) -> bool {
        match self {
            Self::Named(names) => {
                (1..=MAX_NAMED_FIELDS).contains(&names.len())
                    && names.iter().all(|name| name.len() <= MAX_KEY)
            }
            Self::None | Self::All => true,
        }
    }
}

/// What becomes of a key whose end leaves a choice: `untracked`,
/// `vanished` and `recovered` take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// Its handler runs.
    Fire,
    /// It is forgotten.
    Ignore,
}

/// How a key is written back for its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack(#[doc(hidden)] pub WriteBackValue);

/// Where the number of the attempt to come stands in a key that is written back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteBackValue {
    /// No key is written back.
    #[default]
    #[serde(rename = "no")]
    Never,
    /// Nowhere: the value is as it was.
    #[serde(rename = "unchanged")]
    Unchanged,
    /// In this field of a JSON object.
    #[serde(rename = "counting_in")]
    AttemptInField(String),
    /// It is the value.
    #[serde(rename = "counting")]
    AttemptOnly,
}

impl WriteBack {
    /// The value as it was.
    pub fn unchanged() -> Self {
        Self(WriteBackValue::Unchanged)
    }

    /// The value as it was, but for this field of it: where the value is a JSON object, the number of the
    /// attempt to come stands there, as consumers that retry by hand expect it.
    pub fn counting_in(field: impl Into<String>) -> Self {
        Self(WriteBackValue::AttemptInField(field.into()))
    }

    /// The number of the attempt to come, and nothing else: for keys whose value is such a count, as in
    /// `SET notice:42 1 EX 15`. It needs no `keep_values`.
    pub fn counting() -> Self {
        Self(WriteBackValue::AttemptOnly)
    }
}

/// How an attached topic's keys are treated; `Attached` sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which revision of the topic's part it is, from 1.
    pub revision: u32,
    /// The topic's part.
    pub topic: TopicPolicy,
    /// Whether no deadline is ever brought forward.
    pub only_extended: bool,
    /// How many keys are remembered at most.
    pub cap: usize,
    /// How many keys a scan looks at in a second.
    pub scan_rate: u32,
    /// How long after a scan has ended the next begins.
    pub scan_every: Duration,
    /// Whether the pattern may have no literal prefix.
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

/// What of it all listeners of a topic have to agree on: as it stands in Redis, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicPolicy {
    /// The version of the text. One of another version, or with more in it, was written by a newer program.
    pub v: u32,
    /// What becomes of expiries of keys whose deadlines had not been read.
    pub untracked: Treatment,
    /// What becomes of keys that are gone at their deadlines, and did not expire.
    pub vanished: Treatment,
    /// What becomes of keys that are gone where something may have been missed.
    pub recovered: Treatment,
    /// Up to how many bytes values are copied.
    pub values: usize,
    /// Whether values that are not strings are copied, as DUMP writes them.
    pub dumps: bool,
    /// Which fields of hashes are copied one by one.
    pub fields: FieldSelection,
    /// How keys are written back for their retries.
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

/// As it stands in Redis: JSON, for people to read.
impl TopicPolicy {
    /// The version that this library writes.
    const VERSION: u32 = 1;

    /// As it stands in Redis.
    pub fn text(&self) -> String {
        Value::Object(self.settings()).to_string()
    }

    /// Reads what stands there.
    ///
    /// # Errors
    /// When it was not written by this version of the library, or could not have been.
    pub fn read(text: &[u8]) -> Result<Self> {
        let unreadable = |why: &str| Error::new(ErrorKind::WireVersion, format!("it cannot be read: {why}"));
        let read: Self = serde_json::from_slice(text).map_err(|error| unreadable(&error.to_string()))?;
        match read.v {
            Self::VERSION if read.values <= MAX_PAYLOAD && read.fields.can_be() => Ok(read),
            Self::VERSION => Err(unreadable("it keeps larger values, or more fields, than it can")),
            other => {
                let known = Self::VERSION;
                Err(unreadable(&format!("it is of version {other}, and this library knows {known}")))
            }
        }
    }

    /// What differs, setting by setting; nothing where all is the same.
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
            _ => serde_json::Map::new(), // a struct of plain settings is always an object
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
    /// What of a value is copied.
    pub fn capture(&self) -> CopySpec {
        let TopicPolicy { values, dumps, fields, .. } = &self.topic;
        CopySpec { cap: *values, dumps: *dumps, fields: fields.clone() }
    }

    /// Whether keys are written back for their retries.
    pub(crate) fn restores(&self) -> bool {
        self.topic.write_back != WriteBackValue::Never
    }

    /// How many keys each of so many partitions remembers.
    pub(crate) fn cap_of_partition(&self, partitions: u32) -> usize {
        self.cap.div_ceil(partitions.max(1) as usize)
    }

    /// How long before its deadline a key is read again, in ms; 0: not.
    pub(crate) fn reread_ms(&self) -> u64 {
        if self.topic.values > 0 { ms_ceil(REREAD) } else { 0 }
    }

    /// Refuses settings that can never work, or would hurt.
    pub fn check(&self, name: &str, pattern: &Pattern) -> Result<()> {
        if pattern.literal_prefix().is_empty() && !self.any_prefix {
            return Err(Error::invalid(format!(
                "attached topic {name}: pattern {pattern} has no literal prefix, so that every key of the database \
                 would have to be looked at; give its keys a prefix, or say Attached::allow_any_prefix"
            )));
        }
        let TopicPolicy { values, dumps, fields, .. } = &self.topic;
        let keeps_values = *values > 0;
        // What is written back for a retry is made of the value that the key had.
        let restores_values = self.restores() && self.topic.write_back != WriteBackValue::AttemptOnly;
        let counts_in_more =
            matches!(&self.topic.write_back, WriteBackValue::AttemptInField(field) if field.len() > MAX_KEY);
        let rules = [
            (*values <= MAX_PAYLOAD, "keep_values must be at most 8 MiB"),
            (keeps_values || !dumps, "keep_dumps needs a cap: say keep_values, too"),
            (
                keeps_values || *fields == FieldSelection::None,
                "keep_fields needs a cap: say keep_values, too",
            ),
            (
                fields.can_be(),
                "keep_fields takes 1 to 1,000 names of at most 4 KiB; keep_all_fields takes all",
            ),
            (
                *fields == FieldSelection::None || !self.restores(),
                "write_back cannot write a hash back of which fields are kept: say keep_dumps in place of keep_fields",
            ),
            (!counts_in_more, "write_back counts in a field whose name has at most 4 KiB"),
            (keeps_values || !restores_values, "write_back needs the value: say keep_values, too"),
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

    /// As programs of each version have written it.
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
        let page = include_str!("../../../docs/wire.md");
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
