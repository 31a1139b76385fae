//! From the source of a pattern to its segments.

use crate::pattern::error::PatternError;
use crate::pattern::expression;
use crate::pattern::kind::PatternErrorKind as Kind;
use crate::pattern::segment::{Capture, Segment, Takes};

const MAX_BYTES: usize = 1024;
const MAX_SEGMENTS: usize = 32;

type Result<T> = std::result::Result<T, PatternError>;

pub(super) fn parse(source: &str) -> Result<Vec<Segment>> {
    let parser = Parser { source, at: 0, segments: Vec::new() };
    parser.check_source()?;
    parser.run()
}

struct Parser<'s> {
    source: &'s str,
    /// Always on a character boundary.
    at: usize,
    segments: Vec<Segment>,
}

impl<'s> Parser<'s> {
    fn check_source(&self) -> Result<()> {
        if self.source.is_empty() {
            return Err(self.error(Kind::Empty, 0, ""));
        }
        if self.source.len() > MAX_BYTES {
            return Err(self.error(Kind::TooLong, self.source.len(), ""));
        }
        if let Some((at, c)) = self.source.char_indices().find(|(_, c)| c.is_control()) {
            let detail = format!("U+{:04X}", u32::from(c));
            return Err(self.error(Kind::ControlCharacter, at, detail));
        }
        Ok(())
    }

    fn run(mut self) -> Result<Vec<Segment>> {
        loop {
            if self.segments.len() == MAX_SEGMENTS {
                return Err(self.error(Kind::TooManySegments, self.at, ""));
            }
            let segment = self.segment()?;
            self.segments.push(segment);
            if self.at == self.source.len() {
                return Ok(self.segments);
            }
            self.at += 1; // A segment ends at the end or before a ':'.
        }
    }

    fn segment(&mut self) -> Result<Segment> {
        let remaining = self.remaining();
        if remaining.is_empty() || remaining.starts_with(':') {
            Err(self.error(Kind::EmptySegment, self.at, ""))
        } else if remaining.starts_with('{') && !remaining.starts_with("{{") {
            self.capture().map(Segment::Capture)
        } else {
            self.literal().map(Segment::Literal)
        }
    }

    fn literal(&mut self) -> Result<String> {
        let start = self.at;
        let mut text = String::new();
        while let Some(c) = self.remaining().chars().next().filter(|&c| c != ':') {
            if matches!(c, '{' | '}') {
                self.first_of_two_braces(c)?;
            }
            text.push(c);
            self.at += c.len_utf8();
        }
        if is_foreign_capture(&text) {
            return Err(self.error(Kind::ForeignCapture, start, format!("`{text}`")));
        }
        Ok(text)
    }

    /// Passes the first brace of an escape, if it is one.
    fn first_of_two_braces(&mut self, brace: char) -> Result<()> {
        if self.remaining()[1..].starts_with(brace) {
            self.at += 1;
            return Ok(());
        }
        if brace == '}' {
            return Err(self.error(Kind::UnopenedBrace, self.at, ""));
        }
        self.capture_body()?;
        Err(self.error(Kind::CaptureBesideText, self.at, ""))
    }

    fn capture(&mut self) -> Result<Capture> {
        let offset = self.at;
        let body = self.capture_body()?;
        let capture = self.parse_capture(body)?;
        self.at += body.len() + 2;
        let remaining = self.remaining();
        if !remaining.is_empty() && !remaining.starts_with(':') {
            return Err(self.error(Kind::CaptureBesideText, self.at, ""));
        }
        if matches!(capture.takes, Takes::Rest) && !remaining.is_empty() {
            return Err(self.error(Kind::RestNotLast, offset, format!("`{{{body}}}`")));
        }
        Ok(capture)
    }

    /// What stands between the brace here and the one that closes it.
    fn capture_body(&self) -> Result<&'s str> {
        let inside = &self.remaining()[1..];
        let mut depth = 1;
        let mut escaped = false;
        for (at, c) in inside.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(&inside[..at]);
            }
        }
        Err(self.error(Kind::UnclosedBrace, self.at, ""))
    }

    fn parse_capture(&self, body: &str) -> Result<Capture> {
        let offset = self.at;
        if let Some((name, regex)) = body.split_once(':') {
            let name = self.name(name)?;
            let regex_at = offset + 1 + name.len() + 1;
            let regex =
                expression::compile(regex).map_err(|fault| self.error(fault.kind, regex_at, fault.detail))?;
            return Ok(Capture { name, takes: Takes::Matching(regex), offset });
        }
        let (name, takes) = match body.strip_suffix("..") {
            Some(name) => (name, Takes::Rest),
            None => (body, Takes::One),
        };
        Ok(Capture { name: self.name(name)?, takes, offset })
    }

    /// Checks the name of the capture that begins here.
    fn name(&self, name: &str) -> Result<String> {
        let fail = |kind| Err(self.error(kind, self.at + 1, format!("`{name}`")));
        if name.is_empty() {
            return Err(self.error(Kind::EmptyName, self.at, ""));
        }
        let well_formed = !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !well_formed {
            return fail(Kind::InvalidName);
        }
        let mut others = self.segments.iter().filter_map(Segment::as_capture);
        if others.any(|other| other.name == name) {
            return fail(Kind::DuplicateName);
        }
        Ok(name.to_owned())
    }

    fn remaining(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn error(&self, kind: Kind, offset: usize, detail: impl Into<String>) -> PatternError {
        PatternError::new(self.source, kind, offset, detail)
    }
}

/// What people write for a capture who come from globs or from another router.
fn is_foreign_capture(text: &str) -> bool {
    matches!(text, "*" | "**" | "?") || (text.starts_with('<') && text.ends_with('>'))
}
