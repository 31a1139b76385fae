//! The part of a policy that belongs to the topic, as it stands in Redis: JSON, for people to read.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_PAYLOAD;
use crate::policy::TopicPolicy;

impl TopicPolicy {
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

    fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            _ => Map::new(), // a struct of plain settings is always an object
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Counting, Fields, Treatment};

    fn odd() -> TopicPolicy {
        TopicPolicy {
            unenrolled: Treatment::Ignore,
            vanished: Treatment::Fire,
            recovered: Treatment::Ignore,
            values: 4096,
            dumps: true,
            fields: Fields::named(["b c", "a"].map(str::to_owned).into_iter()),
            write_back: Counting::In("at\"tempt".into()),
            ..TopicPolicy::default()
        }
    }

    /// As programs of each version have written it.
    #[test]
    fn each_setting_has_its_word_and_is_read_again() {
        let with = |write_back: Counting, fields: Fields| TopicPolicy { write_back, fields, ..odd() };
        for (policy, fields, back) in [
            (odd(), r#"{"named":["a","b c"]}"#, r#"{"counting_in":"at\"tempt"}"#),
            (with(Counting::Never, Fields::None), r#""none""#, r#""no""#),
            (with(Counting::Nowhere, Fields::All), r#""all""#, r#""unchanged""#),
            (with(Counting::Alone, Fields::None), r#""none""#, r#""counting""#),
        ] {
            let text = format!(
                r#"{{"dumps":true,"fields":{fields},"recovered":"ignore","unenrolled":"ignore","v":1,"values":4096,"vanished":"fire","write_back":{back}}}"#
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
        for setting in ["unenrolled", "vanished", "recovered", "values", "dumps", "fields", "write_back"] {
            assert!(plain.differences(&odd).contains(&format!("{setting} is ")), "{setting}");
        }
    }

    #[test]
    fn what_a_newer_program_has_written_is_refused() {
        let text = odd().text();
        for (from, to, says) in [
            ("\"v\":1", "\"v\":2", "version 2"),
            ("{", "{\"moon\":1,", "moon"),
            ("\"unenrolled\":\"ignore\"", "\"unenrolled\":\"ask\"", "ask"),
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
