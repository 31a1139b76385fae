//! The part of a policy that belongs to the topic, as it stands in Redis: JSON, for people to read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_PAYLOAD;
use crate::policy::{Capture, Counting, Fields, Policy, Recovered, Unenrolled, Vanished, WriteBack};

/// Of the text. One of another version, or with more in it, was written by a newer program.
const VERSION: u32 = 1;

/// What all listeners of a topic have to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicPolicy {
    v: u32,
    unenrolled: Then,
    vanished: Then,
    recovered: Then,
    values: usize,
    dumps: bool,
    fields: Kept,
    write_back: Back,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    Fire,
    Ignore,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    None,
    All,
    Named(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Back {
    No,
    Unchanged,
    CountingIn(String),
    Counting,
}

impl TopicPolicy {
    /// Of a listener's policy what is the topic's.
    pub fn of(policy: &Policy) -> Self {
        let then = |fires| if fires { Then::Fire } else { Then::Ignore };
        Self {
            v: VERSION,
            unenrolled: then(policy.unenrolled == Unenrolled::Fire),
            vanished: then(policy.vanished == Vanished::Fire),
            recovered: then(policy.recovered == Recovered::Fire),
            values: policy.capture.cap,
            dumps: policy.capture.dumps,
            fields: match &policy.capture.fields {
                Fields::None => Kept::None,
                Fields::All => Kept::All,
                Fields::Named(names) => Kept::Named(names.to_vec()),
            },
            write_back: match &policy.write_back {
                None => Back::No,
                Some(WriteBack(Counting::Nowhere)) => Back::Unchanged,
                Some(WriteBack(Counting::In(field))) => Back::CountingIn(field.clone()),
                Some(WriteBack(Counting::Alone)) => Back::Counting,
            },
        }
    }

    /// A listener's policy, with this in the place of what is the topic's.
    pub fn put_into(self, own: &Policy) -> Policy {
        let fires = |then| then == Then::Fire;
        Policy {
            unenrolled: if fires(self.unenrolled) { Unenrolled::Fire } else { Unenrolled::Ignore },
            vanished: if fires(self.vanished) { Vanished::Fire } else { Vanished::Ignore },
            recovered: if fires(self.recovered) { Recovered::Fire } else { Recovered::Ignore },
            capture: Capture { cap: self.values, dumps: self.dumps, fields: self.fields.into() },
            write_back: match self.write_back {
                Back::No => None,
                Back::Unchanged => Some(WriteBack(Counting::Nowhere)),
                Back::CountingIn(field) => Some(WriteBack(Counting::In(field))),
                Back::Counting => Some(WriteBack(Counting::Alone)),
            },
            ..own.clone()
        }
    }

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
            VERSION if read.can_be() => Ok(read),
            VERSION => Err(unreadable("it keeps larger values, or more fields, than it can")),
            other => Err(unreadable(&format!("it is of version {other}, and this library knows {VERSION}"))),
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

    fn can_be(&self) -> bool {
        self.values <= MAX_PAYLOAD && Fields::from(self.fields.clone()).can_be()
    }

    fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            _ => Map::new(), // a struct of plain settings is always an object
        }
    }
}

impl From<Kept> for Fields {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::None => Self::None,
            Kept::All => Self::All,
            Kept::Named(names) => Self::named(names.into_iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd() -> Policy {
        Policy {
            unenrolled: Unenrolled::Ignore,
            vanished: Vanished::Fire,
            recovered: Recovered::Ignore,
            capture: Capture {
                cap: 4096,
                dumps: true,
                fields: Fields::named(["b c", "a"].map(str::to_owned).into_iter()),
            },
            write_back: Some(WriteBack::counting_in("at\"tempt")),
            cap: 7,
            ..Policy::default()
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_leaves_a_listener_its_own_bounds() {
        let counting = Policy { write_back: Some(WriteBack::counting()), ..Policy::default() };
        for policy in [Policy::default(), counting, odd()] {
            let read = TopicPolicy::read(TopicPolicy::of(&policy).text().as_bytes()).expect("it can be read");
            assert_eq!(read, TopicPolicy::of(&policy));
            let own = Policy { cap: 9, ..Policy::default() };
            let followed = read.put_into(&own);
            assert_eq!((TopicPolicy::of(&followed), followed.cap), (TopicPolicy::of(&policy), 9));
        }
    }

    #[test]
    fn the_example_of_the_wire_is_what_is_written() {
        let policy = Policy { capture: Capture { cap: 4096, ..Capture::default() }, ..Policy::default() };
        let page = include_str!("../../../docs/wire.md");
        assert!(page.contains(&format!("\n{}\n", TopicPolicy::of(&policy).text())));
    }

    #[test]
    fn what_differs_is_named_with_both_sides() {
        let (plain, odd) = (TopicPolicy::of(&Policy::default()), TopicPolicy::of(&odd()));
        assert_eq!(plain.differences(&plain), "");
        let other = TopicPolicy { values: 8, ..plain.clone() };
        assert_eq!(plain.differences(&other), "values is 0 here and 8 there");
        for setting in ["unenrolled", "vanished", "recovered", "values", "dumps", "fields", "write_back"] {
            assert!(plain.differences(&odd).contains(&format!("{setting} is ")), "{setting}");
        }
    }

    #[test]
    fn what_a_newer_program_has_written_is_refused() {
        let text = TopicPolicy::of(&odd()).text();
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
