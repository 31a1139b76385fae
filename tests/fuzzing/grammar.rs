//! Patterns read and matched a second time, as the documented grammar has it: by regular expressions
//! for its words, and without a thought for what to tell whoever made a mistake.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use regex::bytes;

use crate::fuzzing::oracle::Kind;

static LITERAL: LazyLock<Regex> = LazyLock::new(|| word(r"\A(?:[^:{}]|\{\{|\}\})+"));
static FOREIGN: LazyLock<Regex> = LazyLock::new(|| word(r"(?s)\A(?:\*|\*\*|\?|<.*>)\z"));
static CAPTURE: LazyLock<Regex> = LazyLock::new(|| word(r"\A\{([A-Za-z_][A-Za-z0-9_]*)(\}|\.\.\}|:)"));
static BRACE: LazyLock<Regex> = LazyLock::new(|| word(r"(?s)\\.|[{}]"));

fn word(expression: &str) -> Regex {
    Regex::new(expression).unwrap_or_else(|error| panic!("{error}"))
}

#[derive(Debug)]
pub(super) struct Segment<'s> {
    pub(super) kind: Kind,
    /// Of a capture; a literal has none.
    pub(super) name: Option<&'s str>,
    /// A literal without its escapes, or a capture's regular expression.
    pub(super) text: String,
}

/// The segments of a pattern, or `None` if it breaks a rule. Regular expressions are found, not
/// judged.
pub(super) fn read(source: &str) -> Option<Vec<Segment<'_>>> {
    if !(1..=1024).contains(&source.len()) || source.contains(char::is_control) {
        return None;
    }
    let mut segments = Vec::new();
    let mut remaining = source;
    loop {
        let (segment, after) = segment(remaining)?;
        segments.push(segment);
        match after.strip_prefix(':') {
            Some(next) => remaining = next,
            None if after.is_empty() => break,
            None => return None,
        }
    }
    let names: Vec<_> = segments.iter().filter_map(|segment| segment.name).collect();
    let distinct = names.iter().collect::<HashSet<_>>().len() == names.len();
    let rests = segments.iter().rev().skip(1).filter(|segment| segment.kind == Kind::Rest).count();
    (segments.len() <= 32 && distinct && rests == 0).then_some(segments)
}

/// The first segment, and what follows it.
fn segment(text: &str) -> Option<(Segment<'_>, &str)> {
    if let Some(found) = LITERAL.find(text) {
        let literal = found.as_str().replace("{{", "{").replace("}}", "}");
        let foreign = FOREIGN.is_match(&literal);
        let segment = Segment { kind: Kind::Literal, name: None, text: literal };
        return (!foreign).then_some((segment, &text[found.end()..]));
    }
    let head = CAPTURE.captures(text)?;
    let (_, [name, end]) = head.extract();
    let after = &text[head[0].len()..];
    let capture = |kind, regex: &str| Segment { kind, name: Some(name), text: regex.to_owned() };
    match end {
        "}" => Some((capture(Kind::Plain, ""), after)),
        "..}" => Some((capture(Kind::Rest, ""), after)),
        _ => {
            let end = closing_brace(after)?;
            Some((capture(Kind::Regex, &after[..end]), &after[end + 1..]))
        }
    }
}

/// Where the brace stands that closes an expression; braces in it balance or are escaped.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 0;
    for token in BRACE.find_iter(text) {
        match token.as_str() {
            "{" => open += 1,
            "}" if open == 0 => return Some(token.start()),
            "}" => open -= 1,
            _ => {}
        }
    }
    None
}

/// What each segment accepts, compiled: whole expressions, and anything for what has none.
pub(super) struct Matcher(Vec<(Kind, bytes::Regex)>);

impl Matcher {
    /// `None` if a regular expression is none, or a large one.
    pub(super) fn new(segments: &[Segment<'_>]) -> Option<Self> {
        let compile = |segment: &Segment<'_>| {
            let expression = match segment.kind {
                Kind::Literal => regex::escape(&segment.text),
                Kind::Regex => segment.text.clone(),
                Kind::Plain | Kind::Rest => "(?s-u:.)+".to_owned(),
            };
            Some((segment.kind, whole(&expression)?))
        };
        segments.iter().map(compile).collect::<Option<_>>().map(Self)
    }

    /// What decides between two patterns that match a key; the lesser wins.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.0.iter().map(|(kind, _)| *kind).collect()
    }

    pub(super) fn matches(&self, key: &[u8]) -> bool {
        let parts: Vec<_> = key.split(|&byte| byte == b':').collect();
        let rest = self.0.last().is_some_and(|(kind, _)| *kind == Kind::Rest);
        let fits = if rest { parts.len() >= self.0.len() } else { parts.len() == self.0.len() };
        fits && parts.iter().all(|part| !part.is_empty())
            && parts.iter().zip(&self.0).all(|(part, (_, regex))| regex.is_match(part))
    }
}

/// An expression that matches a whole segment, if it is one by itself, too, and not a large one.
pub(super) fn whole(expression: &str) -> Option<bytes::Regex> {
    let compile = |expression: &str| bytes::RegexBuilder::new(expression).size_limit(1 << 20).build().ok();
    compile(expression).and_then(|_| compile(&format!(r"\A(?:{expression})\z")))
}
