//! Patterns as data, and matching written a second time: slowly, naively and without regular
//! expressions.

use proptest::prelude::*;
use proptest::sample::select;

/// Ordered like the written rule: literal, regex, plain, rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Literal,
    Regex,
    Plain,
    Rest,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Literal(&'static str),
    /// A position in [`REGEXES`].
    Regex(usize),
    Plain,
    Rest,
}

type Predicate = fn(&[u8]) -> bool;

/// Each with what it means.
const REGEXES: [(&str, Predicate); 8] = [
    ("[0-9]+", |s| s.iter().all(u8::is_ascii_digit)),
    ("[a-c]{2,3}", |s| matches!(s.len(), 2 | 3) && s.iter().all(|b| (b'a'..=b'c').contains(b))),
    ("a|ab", |s| s == b"a" || s == b"ab"),
    ("(?i)AB", |s| s.eq_ignore_ascii_case(b"ab")),
    (r"\{.*\}", |s| {
        s.len() > 1 && s[0] == b'{' && s.ends_with(b"}") && str::from_utf8(s).is_ok_and(|s| !s.contains('\n'))
    }),
    ("(?s-u:.){2}", |s| s.len() == 2),
    (r"(?-u)[^\xff]+", |s| !s.contains(&0xff)),
    ("b.?", |s| str::from_utf8(s).is_ok_and(|s| s.starts_with('b') && s.chars().count() < 3 && s != "b\n")),
];

const LITERALS: [&str; 8] = ["a", "ab", "b", "12", "{a}", "é", "*a", "app"];

const SEGMENTS: [&[u8]; 20] = [
    b"",
    b"a",
    b"b",
    b"ab",
    b"aB",
    b"abc",
    b"bcab",
    b"0",
    b"12",
    b"{a}",
    b"{}",
    "é".as_bytes(),
    b"*a",
    b"app",
    b"\xff",
    b"\n",
    b"b\n",
    b"b\xff",
    b"\0",
    "bé".as_bytes(),
];

/// A pattern that is sound by construction.
#[derive(Debug, Clone)]
pub(super) struct Spec(Vec<Part>);

impl Spec {
    pub(super) fn source(&self) -> String {
        let part = |(at, part): (usize, &Part)| match part {
            Part::Literal(text) => text.replace('{', "{{").replace('}', "}}"),
            Part::Regex(which) => format!("{{c{at}:{}}}", REGEXES[*which].0),
            Part::Plain => format!("{{c{at}}}"),
            Part::Rest => format!("{{c{at}..}}"),
        };
        self.0.iter().enumerate().map(part).collect::<Vec<_>>().join(":")
    }

    pub(super) fn kinds(&self) -> Vec<Kind> {
        let kind = |part: &Part| match part {
            Part::Literal(_) => Kind::Literal,
            Part::Regex(_) => Kind::Regex,
            Part::Plain => Kind::Plain,
            Part::Rest => Kind::Rest,
        };
        self.0.iter().map(kind).collect()
    }

    /// The key with these values in it, whether it matches or not.
    pub(super) fn join(&self, values: &[Vec<u8>]) -> Vec<u8> {
        let mut values = values.iter();
        let part = |part: &Part| match part {
            Part::Literal(text) => text.as_bytes().to_vec(),
            _ => values.next().expect("one value for each capture").clone(),
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(&b':')
    }

    /// What the captures take, or `None` if the key does not match.
    pub(super) fn matches(&self, key: &[u8]) -> Option<Vec<Vec<u8>>> {
        let segments: Vec<&[u8]> = key.split(|&byte| byte == b':').collect();
        let has_rest = matches!(self.0.last(), Some(Part::Rest));
        let fits = segments.len() == self.0.len() || has_rest && segments.len() > self.0.len();
        if !fits || segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let mut values = Vec::new();
        for (at, part) in self.0.iter().enumerate() {
            let accepted = match part {
                Part::Literal(text) => segments[at] == text.as_bytes(),
                Part::Regex(which) => REGEXES[*which].1(segments[at]),
                Part::Plain | Part::Rest => true,
            };
            match part {
                _ if !accepted => return None,
                Part::Literal(_) => {}
                Part::Regex(_) | Part::Plain => values.push(segments[at].to_vec()),
                Part::Rest => values.push(segments[at..].join(&b':')),
            }
        }
        Some(values)
    }
}

/// Any pattern of up to four segments.
pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let part = prop_oneof![
        3 => select(&LITERALS[..]).prop_map(Part::Literal),
        3 => (0..REGEXES.len()).prop_map(Part::Regex),
        2 => Just(Part::Plain),
    ];
    let parts = prop::collection::vec(part, 0..4);
    (parts, any::<bool>()).prop_map(|(mut parts, rest)| {
        if rest || parts.is_empty() {
            parts.push(Part::Rest);
        }
        Spec(parts)
    })
}

/// A segment of a key; empty now and then.
pub(super) fn segment() -> impl Strategy<Value = Vec<u8>> {
    select(&SEGMENTS[..]).prop_map(<[u8]>::to_vec)
}

/// A key of up to five segments, which now and then are empty.
pub(super) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(segment(), 1..6).prop_map(|segments| segments.join(&b':'))
}

/// A key that agrees with the pattern at most positions, and mostly at all of them.
pub(super) fn key_near(spec: &Spec) -> impl Strategy<Value = Vec<u8>> + use<> {
    let near = |part: &Part| match *part {
        Part::Literal(text) => prop_oneof![9 => Just(text.as_bytes().to_vec()), 1 => segment()].boxed(),
        Part::Regex(which) => {
            let good: Vec<_> =
                SEGMENTS.into_iter().filter(|s| !s.is_empty() && REGEXES[which].1(s)).collect();
            prop_oneof![9 => select(good).prop_map(<[u8]>::to_vec), 1 => segment()].boxed()
        }
        Part::Plain => segment().boxed(),
        Part::Rest => key().boxed(),
    };
    let segments: Vec<_> = spec.0.iter().map(near).collect();
    segments.prop_map(|segments| segments.join(&b':'))
}
