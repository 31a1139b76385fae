//! Tests of valid and invalid patterns, and of their errors.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::tests::pattern;
use crate::{Pattern, PatternErrorKind as Kind};

fn refusal(source: &str) -> (Kind, usize) {
    let error = Pattern::new(source).expect_err(source);
    assert_eq!(error.pattern(), source);
    assert!(!error.hint().is_empty() && error.to_string().ends_with(error.hint()));
    (error.kind(), error.offset())
}

#[test]
fn refuses_with_kind_and_place() {
    let table = [
        ("", Kind::Empty, 0),
        (":", Kind::EmptySegment, 0),
        (":a", Kind::EmptySegment, 0),
        ("a:", Kind::EmptySegment, 2),
        ("a::b", Kind::EmptySegment, 2),
        ("app::id", Kind::EmptySegment, 4),
        ("{a}:", Kind::EmptySegment, 4),
        ("a\nb", Kind::ControlCharacter, 1),
        ("a:\0", Kind::ControlCharacter, 2),
        ("a:\u{1b}[2J", Kind::ControlCharacter, 2),
        ("a:\u{85}", Kind::ControlCharacter, 2),
        ("a:{id:\r}", Kind::ControlCharacter, 6),
        ("app:*:id", Kind::ForeignCapture, 4),
        ("**", Kind::ForeignCapture, 0),
        ("app:?", Kind::ForeignCapture, 4),
        ("app:<id>", Kind::ForeignCapture, 4),
        ("x{id}", Kind::CaptureBesideText, 1),
        ("{id}x", Kind::CaptureBesideText, 4),
        ("{a}{b}", Kind::CaptureBesideText, 3),
        ("{{{id}}}", Kind::CaptureBesideText, 2),
        ("{id:a}b}", Kind::CaptureBesideText, 6),
        ("a:{id", Kind::UnclosedBrace, 2),
        ("a:x{id", Kind::UnclosedBrace, 3),
        ("a:{", Kind::UnclosedBrace, 2),
        (r"{id:\}", Kind::UnclosedBrace, 0),
        ("{id:[{]}", Kind::UnclosedBrace, 0),
        ("}", Kind::UnopenedBrace, 0),
        ("}{", Kind::UnopenedBrace, 0),
        ("a:}}}", Kind::UnopenedBrace, 4),
        ("{}", Kind::EmptyName, 0),
        ("a:{:x}", Kind::EmptyName, 2),
        ("{..}", Kind::EmptyName, 0),
        ("{1a}", Kind::InvalidName, 1),
        ("{a b}", Kind::InvalidName, 1),
        ("{a-b}", Kind::InvalidName, 1),
        ("{é}", Kind::InvalidName, 1),
        ("{a{b}}", Kind::InvalidName, 1),
        ("{a...}", Kind::InvalidName, 1),
        ("{a..:x}", Kind::InvalidName, 1),
        ("{id}:x:{id:[0-9]}", Kind::DuplicateName, 8),
        ("{a..}:x", Kind::RestNotLast, 0),
        ("x:{a..}:", Kind::RestNotLast, 2),
    ];
    for (source, kind, offset) in table {
        assert_eq!(refusal(source), (kind, offset), "{source:?}");
    }
}

#[test]
fn refuses_regexes_with_the_reason() {
    let table = [
        ("a:{id:[0-9}", Kind::InvalidRegex, "unclosed character class"),
        ("a:{id:(}", Kind::InvalidRegex, "unclosed group"),
        ("a:{id:[^}]+}", Kind::InvalidRegex, r"`\{` and `\}`"),
        ("a:{id:a)|(b}", Kind::InvalidRegex, "unopened group"),
        ("a:{id:*}", Kind::InvalidRegex, "repetition operator missing expression"),
        ("a:{id:(?=x)}", Kind::InvalidRegex, "look-around"),
        ("a:{id:(?x)a # swallows}", Kind::InvalidRegex, "unclosed group"),
        (r"a:{id:\w{1000}}", Kind::RegexTooLarge, r"for `\w`"),
        ("a:{id:(?:a{1000}){1000}}", Kind::RegexTooLarge, "repetitions"),
        ("a:{id:}", Kind::RegexMatchesNothing, "``"),
        ("a:{id:[0-9]+:x}", Kind::RegexMatchesNothing, "`[0-9]+:x`"),
        ("a:{id:^$}", Kind::RegexMatchesNothing, "`^$`"),
    ];
    for (source, kind, part) in table {
        assert_eq!(refusal(source), (kind, 6), "{source:?}");
        let message = Pattern::new(source).expect_err(source).to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn limits_are_exact() {
    let segments = |n| vec!["a"; n].join(":");
    assert!(Pattern::new(&segments(32)).is_ok());
    assert_eq!(refusal(&segments(33)), (Kind::TooManySegments, 64));
    assert_eq!(refusal(&":".repeat(33)), (Kind::EmptySegment, 0));

    assert!(Pattern::new(&"a".repeat(1024)).is_ok());
    assert_eq!(refusal(&"a".repeat(1025)), (Kind::TooLong, 1025));
}

#[test]
fn messages_are_one_short_line_without_control_characters() {
    let hostile = "x:\u{1b}]0;title\u{7}\r\n\u{202e}\u{2028}".repeat(100);
    for source in [&hostile[..], &hostile[..92], "{a\u{2028}b}", "a:{id:(\u{202e}}"] {
        let message = Pattern::new(source).expect_err(source).to_string();
        let bad = |c: char| c.is_control() || "\u{202e}\u{2028}".contains(c);
        assert!(!message.contains(bad), "{message:?}");
        assert_eq!(message.contains('…'), source.len() > 160);
        assert!(message.len() < 600, "{}", message.len());
    }
}

#[test]
fn escapes_and_metacharacters_are_literal() {
    let table: [(&str, &[u8]); 9] = [
        ("a:{{id}}", b"a:{id}"),
        ("}}{{", b"}{"),
        ("a.+[b]$", b"a.+[b]$"),
        ("images*", b"images*"),
        ("*.png", b"*.png"),
        ("<id", b"<id"),
        ("a:id>", b"a:id>"),
        (r"a\b", br"a\b"),
        ("caf\u{e9}:x", b"caf\xc3\xa9:x"),
    ];
    for (source, key) in table {
        let pattern = pattern(source);
        assert!(pattern.is_match(key), "{source}");
        assert_eq!(pattern.literal_prefix().as_bytes(), key);
        assert_eq!(pattern.build([] as [&str; 0]).as_deref(), Ok(key));
        assert_eq!(pattern.as_str(), source);
    }
    assert!(!pattern("images*").is_match(b"images7"));
    assert!(!pattern("a.c").is_match(b"abc"));
}

#[test]
fn regexes_may_hold_braces_and_separators() {
    let table: [(&str, &[u8], &[u8]); 8] = [
        ("{id:[0-9]{2,3}}", b"123", b"1"),
        ("{id:(?:ab|c)}", b"ab", b"abc"),
        ("{id:(?i:x)}", b"X", b"y"),
        (r"{id:\{[^\}]+\}}", b"{tag}", b"tag"),
        (r"{id:\x{41}\p{L}}", "A\u{e9}".as_bytes(), b"A1"),
        ("{id:[^:]+}", b"x", b"x:y"),
        (r"{id:\*}", b"*", b"a"),
        ("{id:<id>}", b"<id>", b"id"),
    ];
    for (source, yes, no) in table {
        assert!(pattern(source).is_match(yes), "{source}");
        assert!(!pattern(source).is_match(no), "{source}");
    }
}

#[test]
fn captures_are_named_from_left_to_right() {
    assert!(pattern("app:{b}:x:{a:[0-9]+}:{c..}").capture_names().eq(["b", "a", "c"]));
    assert_eq!(pattern("app:x").capture_names().count(), 0);
}

#[test]
fn default_names() {
    let table = [
        ("app:trans:notice:{id}", Some("app.trans.notice")),
        ("app:{id}:x", Some("app")),
        ("app-1:a_b:c.d", Some("app-1.a_b.c.d")),
        ("{app}:x", None),
        ("a b:{id}", None),
        ("{{app}}:{id}", None),
        ("a*:{id}", None),
    ];
    for (source, name) in table {
        assert_eq!(pattern(source).default_name().as_deref(), name, "{source}");
    }
}

#[test]
fn equality_and_hash_follow_the_source() {
    let state = RandomState::new();
    assert_eq!(pattern("{a}"), pattern("{a}").clone());
    assert_eq!(state.hash_one(pattern("{a}")), state.hash_one(pattern("{a}")));
    assert_ne!(pattern("{a}"), pattern("{b}"));
    assert_ne!(state.hash_one(pattern("{a}")), state.hash_one(pattern("{b}")));
    assert_eq!(format!("{:?}", pattern("{a}")), "Pattern(\"{a}\")");
    assert_eq!(format!("[{:>5}]", pattern("{a}")), "[  {a}]");
}
