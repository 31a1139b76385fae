//! A second implementation of patterns for tests: simple, slow and without regular expressions.

/// The kind of a segment, in the order of the documented rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Literal,
    Regex,
    Plain,
    Rest,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum SpecPart {
    Literal(&'static str),
    /// An index into [`REGEXES`].
    Regex(usize),
    Plain,
    Rest,
}

type Predicate = fn(&[u8]) -> bool;

/// Regular expressions, each with an equivalent predicate.
pub(crate) const REGEXES: [(&str, Predicate); 8] = [
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

pub(crate) const LITERALS: [&str; 8] = ["a", "ab", "b", "12", "{a}", "é", "*a", "app"];

pub(crate) const SEGMENTS: [&[u8]; 20] = [
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

/// A pattern that is valid by construction: any parts, with a rest only at the end.
#[derive(Debug, Clone)]
pub(crate) struct Spec(pub(crate) Vec<SpecPart>);

impl Spec {
    pub(crate) fn source(&self) -> String {
        let part = |(at, part): (usize, &SpecPart)| match part {
            SpecPart::Literal(text) => text.replace('{', "{{").replace('}', "}}"),
            SpecPart::Regex(which) => format!("{{c{at}:{}}}", REGEXES[*which].0),
            SpecPart::Plain => format!("{{c{at}}}"),
            SpecPart::Rest => format!("{{c{at}..}}"),
        };
        self.0.iter().enumerate().map(part).collect::<Vec<_>>().join(":")
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let kind = |part: &SpecPart| match part {
            SpecPart::Literal(_) => Kind::Literal,
            SpecPart::Regex(_) => Kind::Regex,
            SpecPart::Plain => Kind::Plain,
            SpecPart::Rest => Kind::Rest,
        };
        self.0.iter().map(kind).collect()
    }

    /// Returns the key with these values, which may not match.
    pub(crate) fn join(&self, values: &[Vec<u8>]) -> Vec<u8> {
        let mut values = values.iter();
        let part = |part: &SpecPart| match part {
            SpecPart::Literal(text) => text.as_bytes().to_vec(),
            _ => values.next().expect("one value for each capture").clone(),
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(&b':')
    }

    /// Returns the values of the captures, or `None` if the key does not match.
    pub(crate) fn matches(&self, key: &[u8]) -> Option<Vec<Vec<u8>>> {
        let segments: Vec<&[u8]> = key.split(|&byte| byte == b':').collect();
        let has_rest = matches!(self.0.last(), Some(SpecPart::Rest));
        let fits = segments.len() == self.0.len() || has_rest && segments.len() > self.0.len();
        if !fits || segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let mut values = Vec::new();
        for (at, part) in self.0.iter().enumerate() {
            let accepted = match part {
                SpecPart::Literal(text) => segments[at] == text.as_bytes(),
                SpecPart::Regex(which) => REGEXES[*which].1(segments[at]),
                SpecPart::Plain | SpecPart::Rest => true,
            };
            match part {
                _ if !accepted => return None,
                SpecPart::Literal(_) => {}
                SpecPart::Regex(_) | SpecPart::Plain => values.push(segments[at].to_vec()),
                SpecPart::Rest => values.push(segments[at..].join(&b':')),
            }
        }
        Some(values)
    }
}

/// Returns all strings of one to four of these bytes, shorter ones first.
pub(crate) fn short_strings(bytes: [u8; 5]) -> impl Iterator<Item = Vec<u8>> {
    let longer = move |s: &Vec<u8>| bytes.map(|byte| [&s[..], &[byte]].concat());
    let lengths = std::iter::successors(Some(vec![vec![]]), move |shorter: &Vec<Vec<u8>>| {
        Some(shorter.iter().flat_map(longer).collect())
    });
    lengths.skip(1).take(4).flatten()
}
