//! The regular expression of a capture, compiled to match whole segments.

use regex::Error;
use regex::bytes::{Regex, RegexBuilder};
use regex_automata::util::syntax;

use crate::pattern::kind::PatternErrorKind as Kind;
use crate::pattern::language;
use crate::pattern::overlap::Overlap;

/// Of the compiled expression, in bytes. Matching time is the product of this and the key's length.
const SIZE_LIMIT: usize = 1 << 20;

pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) detail: String,
}

pub(super) fn compile(regex: &str) -> Result<Regex, Fault> {
    // By itself first: `a)|(b` must not become valid by being wrapped.
    syntax::parse_with(regex, &syntax::Config::new().utf8(false))
        .map_err(|error| invalid(&error.to_string()))?;
    let anchored =
        RegexBuilder::new(&format!(r"\A(?:{regex})\z")).size_limit(SIZE_LIMIT).build().map_err(|error| {
            match error {
                Error::CompiledTooBig(_) => fault(Kind::RegexTooLarge, ""),
                // Such as an `(?x)` comment that swallows the end of the wrapping.
                error => invalid(&error.to_string()),
            }
        })?;
    match language::common_segment(anchored.as_str(), language::ANYTHING) {
        Overlap::Disjoint => Err(fault(Kind::RegexMatchesNothing, format!("`{regex}`"))),
        Overlap::Witness(_) | Overlap::Undecided => Ok(anchored),
    }
}

/// The last line of the message says what is wrong; those above draw an arrow at the place.
fn invalid(message: &str) -> Fault {
    let last = message.lines().last().unwrap_or_default();
    fault(Kind::InvalidRegex, last.trim_start_matches("error: "))
}

fn fault(kind: Kind, detail: impl Into<String>) -> Fault {
    Fault { kind, detail: detail.into() }
}
