//! Any text, given to the parser of patterns and to a naive reading of the grammar.

use crate::fuzzing::assert_fit_for_a_log;
use crate::fuzzing::grammar::{self, Matcher, Segment};
use crate::fuzzing::oracle::Kind;
use keylapse_pattern::Pattern;
use keylapse_pattern::PatternError;
use keylapse_pattern::PatternErrorKind;

/// Both accept it and agree on what it means, or the refusal has a reason.
pub(crate) fn pattern_parse(data: &[u8]) {
    let Ok(source) = str::from_utf8(data) else { return };
    let segments = grammar::read(source);
    match (Pattern::new(source), segments) {
        (Ok(pattern), Some(segments)) => accepted(source, &pattern, &segments),
        (Ok(_), None) => panic!("the grammar refuses {source:?}"),
        (Err(error), segments) => refused(source, &error, segments.as_deref()),
    }
}

fn accepted(source: &str, pattern: &Pattern, segments: &[Segment<'_>]) {
    assert_eq!(pattern.to_string(), source);
    assert_eq!(source.parse().as_ref(), Ok(pattern));
    assert!(pattern.capture_names().eq(segments.iter().filter_map(|segment| segment.name)));
    let naive = Matcher::new(segments).expect("an accepted expression compiles");
    for key in keys(segments) {
        assert_eq!(pattern.is_match(&key), naive.matches(&key), "{source:?} {}", key.escape_ascii());
        let Some(captures) = pattern.matches(&key) else { continue };
        assert!(key.starts_with(pattern.literal_prefix().as_bytes()));
        assert_eq!(pattern.build(captures.iter().map(|(_, value)| value)), Ok(key.clone()));
    }
}

/// Keys that may well match: the literals, and a few values for the captures.
fn keys(segments: &[Segment<'_>]) -> Vec<Vec<u8>> {
    let values: [&[u8]; 8] = [b"a", b"0", b"ab", b"", b":", b"a:b", b"\xff", b"\n"];
    let part = |segment: &Segment<'_>, value: &[u8]| match segment.kind {
        Kind::Literal => segment.text.clone().into_bytes(),
        _ => value.to_vec(),
    };
    let key = |value| segments.iter().map(|segment| part(segment, value)).collect::<Vec<_>>().join(&b':');
    values.into_iter().map(key).collect()
}

fn refused(source: &str, error: &PatternError, segments: Option<&[Segment<'_>]>) {
    use PatternErrorKind as K;
    assert_eq!(error.pattern(), source);
    assert!(source.is_char_boundary(error.offset()), "{error} at {}", error.offset());
    assert_fit_for_a_log(&error.to_string(), 6000);
    let Some(segments) = segments else { return };
    // By the grammar it is a pattern, so an expression must be to blame: the one at that place.
    let to_blame = &source[error.offset()..];
    let mut regexes = segments.iter().filter(|segment| segment.kind == Kind::Regex);
    let blamed = regexes.find(|regex| to_blame.starts_with(&format!("{}}}", regex.text)));
    let regex = &blamed.unwrap_or_else(|| panic!("{error}")).text;
    match (error.kind(), grammar::whole(regex)) {
        (K::InvalidRegex | K::RegexTooLarge, None) => {}
        (K::RegexMatchesNothing, Some(regex)) => {
            assert!(!(0..=u8::MAX).any(|byte| byte != b':' && regex.is_match(&[byte])), "{error}");
        }
        (_, compiled) => panic!("{error}: {compiled:?}"),
    }
}
