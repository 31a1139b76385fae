//! Parses the source of a pattern into segments, which match the parts of a key.

use regex::Error;
use regex::bytes::{Regex, RegexBuilder};
use regex_automata::util::syntax;

use crate::error::{PatternError, PatternErrorKind as Fault};
use crate::overlap::{ANYTHING, Overlap, common_segment};

const MAX_BYTES: usize = 1024;
const MAX_SEGMENTS: usize = 32;

/// The memory limit of a compiled expression. The worst time of a match is proportional to this size and to the length of
/// the key.
const REGEX_BYTES: usize = 1 << 20;

type Result<T> = std::result::Result<T, PatternError>;

pub(super) fn parse(source: &str) -> Result<Vec<Segment>> {
    let parser = PatternParser { source, at: 0, segments: Vec::new() };
    parser.check_source()?;
    parser.run()
}

struct PatternParser<'s> {
    source: &'s str,
    /// The current byte offset, always at a character boundary.
    at: usize,
    segments: Vec<Segment>,
}

impl<'s> PatternParser<'s> {
    fn check_source(&self) -> Result<()> {
        if self.source.is_empty() {
            return Err(self.error(Fault::Empty, 0, ""));
        }
        if self.source.len() > MAX_BYTES {
            return Err(self.error(Fault::TooLong, self.source.len(), ""));
        }
        if let Some((at, c)) = self.source.char_indices().find(|(_, c)| c.is_control()) {
            let detail = format!("U+{:04X}", u32::from(c));
            return Err(self.error(Fault::ControlCharacter, at, detail));
        }
        Ok(())
    }

    fn run(mut self) -> Result<Vec<Segment>> {
        loop {
            if self.segments.len() == MAX_SEGMENTS {
                return Err(self.error(Fault::TooManySegments, self.at, ""));
            }
            let segment = self.segment()?;
            self.segments.push(segment);
            if self.at == self.source.len() {
                return Ok(self.segments);
            }
            self.at += 1; // skips the ':', as a segment ends at the end of the source or before a ':'
        }
    }

    fn segment(&mut self) -> Result<Segment> {
        let remaining = self.remaining();
        if remaining.is_empty() || remaining.starts_with(':') {
            Err(self.error(Fault::EmptySegment, self.at, ""))
        } else if remaining.starts_with('{') && !remaining.starts_with("{{") {
            self.capture()
        } else {
            self.literal()
        }
    }

    fn literal(&mut self) -> Result<Segment> {
        let offset = self.at;
        let mut text = String::new();
        while let Some(c) = self.remaining().chars().next().filter(|&c| c != ':') {
            if matches!(c, '{' | '}') {
                self.first_of_two_braces(c)?;
            }
            text.push(c);
            self.at += c.len_utf8();
        }
        if is_foreign_capture(&text) {
            return Err(self.error(Fault::ForeignCapture, offset, format!("`{text}`")));
        }
        Ok(Segment { kind: Kind::Literal, text, regex: None, offset })
    }

    /// Skips the first brace of an escaped brace. Returns an error for a brace that is not escaped.
    fn first_of_two_braces(&mut self, brace: char) -> Result<()> {
        if self.remaining()[1..].starts_with(brace) {
            self.at += 1;
            return Ok(());
        }
        if brace == '}' {
            return Err(self.error(Fault::UnopenedBrace, self.at, ""));
        }
        self.capture_body()?;
        Err(self.error(Fault::CaptureBesideText, self.at, ""))
    }

    fn capture(&mut self) -> Result<Segment> {
        let offset = self.at;
        let body = self.capture_body()?;
        let (kind, name, regex) = match body.split_once(':') {
            Some((name, regex)) => (Kind::Regex, name, Some(regex)),
            None => match body.strip_suffix("..") {
                Some(name) => (Kind::Rest, name, None),
                None => (Kind::Plain, body, None),
            },
        };
        self.check_name(name)?;
        let regex = regex.map(|regex| self.regex(offset + name.len() + 2, regex)).transpose()?;
        self.at += body.len() + 2;
        let remaining = self.remaining();
        if !remaining.is_empty() && !remaining.starts_with(':') {
            return Err(self.error(Fault::CaptureBesideText, self.at, ""));
        }
        if kind == Kind::Rest && !remaining.is_empty() {
            return Err(self.error(Fault::RestNotLast, offset, format!("`{{{body}}}`")));
        }
        Ok(Segment { kind, text: name.to_owned(), regex, offset })
    }

    /// Returns the text between the brace at the current offset and its closing brace.
    fn capture_body(&self) -> Result<&'s str> {
        let (mut depth, mut escaped) = (0, false);
        let closes = |c| {
            match c {
                '{' if !escaped => depth += 1,
                '}' if !escaped => depth -= 1,
                _ => {}
            }
            escaped = c == '\\' && !escaped;
            depth == 0
        };
        match self.remaining().find(closes) {
            Some(end) => Ok(&self.remaining()[1..end]),
            None => Err(self.error(Fault::UnclosedBrace, self.at, "")),
        }
    }

    /// Checks the name of the capture at the current offset.
    fn check_name(&self, name: &str) -> Result<()> {
        let fail = |fault| Err(self.error(fault, self.at + 1, format!("`{name}`")));
        let well_formed = !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            Err(self.error(Fault::EmptyName, self.at, ""))
        } else if !well_formed {
            fail(Fault::InvalidName)
        } else if self.segments.iter().any(|other| !other.is_literal() && other.text == name) {
            fail(Fault::DuplicateName)
        } else {
            Ok(())
        }
    }

    /// Compiles the expression at `offset` so that it matches whole segments.
    fn regex(&self, offset: usize, regex: &str) -> Result<Regex> {
        // The last line of the message has the reason. The lines before it mark the position.
        let invalid = |message: String| {
            let last = message.lines().last().unwrap_or_default();
            self.error(Fault::InvalidRegex, offset, last.trim_start_matches("error: "))
        };
        // The expression is first parsed without the wrapping, which would make `a)|(b` valid.
        syntax::parse_with(regex, &syntax::Config::new().utf8(false))
            .map_err(|error| invalid(error.to_string()))?;
        let mut anchored = RegexBuilder::new(&format!(r"\A(?:{regex})\z"));
        let anchored = anchored.size_limit(REGEX_BYTES).build().map_err(|error| match error {
            Error::CompiledTooBig(_) => self.error(Fault::RegexTooLarge, offset, ""),
            // A valid expression can break the wrapping, for example with an `(?x)` comment at its end.
            error => invalid(error.to_string()),
        })?;
        match common_segment(anchored.as_str(), ANYTHING) {
            Overlap::Disjoint => Err(self.error(Fault::RegexMatchesNothing, offset, format!("`{regex}`"))),
            Overlap::Witness(_) | Overlap::Undecided => Ok(anchored),
        }
    }

    fn remaining(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn error(&self, fault: Fault, offset: usize, detail: impl Into<String>) -> PatternError {
        PatternError::new(self.source, fault, offset, detail.into())
    }
}

/// Returns whether the text is probably meant as a capture, in the notation of globs or of another router.
fn is_foreign_capture(text: &str) -> bool {
    matches!(text, "*" | "**" | "?") || (text.starts_with('<') && text.ends_with('>'))
}

/// The separator of segments, in patterns and in keys.
pub(super) const SEPARATOR: u8 = b':';

/// Splits a key into at most `count` segments. The last one contains all remaining segments.
pub(super) fn split(key: &[u8], count: usize) -> impl Iterator<Item = &[u8]> {
    key.splitn(count, |&byte| byte == SEPARATOR)
}

/// The kind of a segment, ordered from the most specific to the least. This order decides which pattern wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Literal,
    /// A capture of one segment that a regular expression matches.
    Regex,
    /// A capture of any one segment.
    Plain,
    /// A capture of all remaining segments.
    Rest,
}

pub(super) struct Segment {
    pub(super) kind: Kind,
    /// The text of a literal without escapes, which is never empty; or the name of a capture.
    pub(super) text: String,
    /// The regular expression of a [`Kind::Regex`], anchored at both ends.
    pub(super) regex: Option<Regex>,
    /// The byte offset in the pattern, for error messages.
    pub(super) offset: usize,
}

impl Segment {
    pub(super) fn is_literal(&self) -> bool {
        self.kind == Kind::Literal
    }

    /// Returns the reason why the segment does not match this part of a key, or `None` if it matches.
    pub(super) fn fault(&self, part: &[u8]) -> Option<Fault> {
        if self.kind != Kind::Rest && part.contains(&SEPARATOR) {
            return Some(Fault::SeparatorInValue);
        }
        if part.split(|&byte| byte == SEPARATOR).any(<[u8]>::is_empty) {
            return Some(Fault::EmptyValue);
        }
        let fits = match &self.regex {
            Some(regex) => regex.is_match(part),
            None => !self.is_literal() || part == self.text.as_bytes(),
        };
        (!fits).then_some(Fault::ValueMismatch)
    }
}
