//! Tests of matching and building keys, including hostile keys.

use crate::tests::pattern;
use crate::{Captures, Pattern, PatternError, PatternErrorKind as Kind};

fn values(source: &str, key: &[u8]) -> Option<Vec<Vec<u8>>> {
    let captures = pattern(source).matches(key)?;
    Some(captures.iter().map(|(_, value)| value.to_vec()).collect())
}

#[test]
fn matches_whole_segments() {
    type Row = (&'static str, &'static [u8], Option<&'static [&'static [u8]]>);
    let table: [Row; 20] = [
        ("images:{id}", b"images:7", Some(&[b"7"])),
        ("images:{id}", b"imagesfoo:7", None),
        ("images:{id}", b"image:7", None),
        ("images:{id}", b"Images:7", None),
        ("images:{id}", b"images", None),
        ("images:{id}", b"images:", None),
        ("images:{id}", b"images:7:", None),
        ("images:{id}", b"images:7:8", None),
        ("images:{id}", b":images:7", None),
        ("images:{id}", b"images::7", None),
        ("{id:a|ab}", b"ab", Some(&[b"ab"])),
        ("{id:[0-9]+}", b"12a", None),
        ("{id:[0-9]+}", b"12\n", None),
        ("{id:(?m)^a$}", b"b\na", None),
        ("{a}:x:{b}", b"1:x:2", Some(&[b"1", b"2"])),
        ("a:{r..}", b"a", None),
        ("a:{r..}", b"a:", None),
        ("a:{r..}", b"a:b::c", None),
        ("a:{r..}", b"a:b:c", Some(&[b"b:c"])),
        ("{a}:{r..}", b"x:y", Some(&[b"x", b"y"])),
    ];
    for (source, key, expected) in table {
        let expected = expected.map(|parts| parts.iter().map(|part| part.to_vec()).collect());
        assert_eq!(values(source, key), expected, "{source} {}", key.escape_ascii());
    }
}

#[test]
fn keys_are_bytes() {
    let table: [&[u8]; 9] =
        [b"\0", b"\n", b"\r\n", b"\x1b[2J", b"\xff\xfe", b"{tag}", b"*", b" ", b"__keyevent@0__"];
    for part in table {
        let key = [b"a:", part].concat();
        assert_eq!(values("a:{id}", &key), Some(vec![part.to_vec()]));
        assert_eq!(values(r"a:{id:(?s-u:.)+}", &key), Some(vec![part.to_vec()]));
        assert_eq!(pattern("a:{id}").build([part]), Ok(key));
    }
    // Keys are not normalised: the composed and the decomposed é differ.
    assert!(!pattern("caf\u{e9}").is_match("cafe\u{301}".as_bytes()));
    // A dot matches neither invalid UTF-8 nor a newline, unless flags allow it.
    assert_eq!(values("{id:.+}", b"\xff"), None);
    assert_eq!(values("{id:.+}", b"\n"), None);
}

#[test]
fn long_and_degenerate_keys() {
    let long = [b"a:".to_vec(), vec![b'x'; 70_000]].concat();
    let separators = vec![b':'; 70_000];
    let segments = vec![&b"a"[..]; 35_000].join(&b':');
    for source in ["a:{id}", "a:{id:[a-z]+}", "a:{r..}"] {
        assert!(pattern(source).is_match(&long));
        assert!(!pattern(source).is_match(&separators));
        assert!(!pattern(source).is_match(b""));
    }
    assert_eq!(values("a:{r..}", &segments), Some(vec![segments[2..].to_vec()]));
    // A backtracking engine would take exponential time.
    assert!(!pattern("a:{id:(x+)+y}").is_match(&long));
}

#[test]
fn captures_by_name_and_number() {
    let key = b"app:eu:\xff:x:y".to_vec();
    let captures = pattern("app:{region}:{id}:{rest..}").matches(&key).expect("matches");
    drop(key);
    assert_eq!(captures.key(), b"app:eu:\xff:x:y");
    assert_eq!(captures.pattern(), &pattern("app:{region}:{id}:{rest..}"));
    assert_eq!(captures.get_str("region"), Some("eu"));
    assert_eq!(captures.get("id"), Some(&b"\xff"[..]));
    assert_eq!(captures.get_str("id"), None);
    assert_eq!(captures.get("rest"), captures.get_index(2));
    assert_eq!(captures.get("app"), None);
    assert_eq!(captures.get_index(3), None);
    assert_eq!(format!("{captures:?}"), r#"{"region": `eu`, "id": `\xff`, "rest": `x:y`}"#);
}

#[test]
fn build_refuses_what_would_not_come_back() {
    let source = "a:{id:[0-9]+}:{name}:{rest..}";
    let table: [(&[&str], Kind, usize); 12] = [
        (&[], Kind::MissingValue, 2),
        (&["1", "n"], Kind::MissingValue, 21),
        (&["1", "n", "r", "s"], Kind::SurplusValue, 29),
        (&["", "n", "r"], Kind::EmptyValue, 2),
        (&["x", "n", "r"], Kind::ValueMismatch, 2),
        (&["1\n", "n", "r"], Kind::ValueMismatch, 2),
        (&["1:2", "n", "r"], Kind::SeparatorInValue, 2),
        (&["1", "n:", "r"], Kind::SeparatorInValue, 14),
        (&["1", "n", ""], Kind::EmptyValue, 21),
        (&["1", "n", ":r"], Kind::EmptyValue, 21),
        (&["1", "n", "r:"], Kind::EmptyValue, 21),
        (&["1", "n", "r::s"], Kind::EmptyValue, 21),
    ];
    for (values, kind, offset) in table {
        let error = pattern(source).build(values).expect_err("refused");
        assert_eq!((error.kind(), error.offset()), (kind, offset), "{values:?}");
        assert_eq!(error.pattern(), source);
    }
    assert_eq!(pattern(source).build(["1", "n", "r:s"]).as_deref(), Ok(&b"a:1:n:r:s"[..]));
}

#[test]
fn build_errors_are_one_short_line() {
    let value = "\u{1b}\n".repeat(40_000);
    let message = pattern("a:{id:x}").build([value]).expect_err("refused").to_string();
    assert!(message.starts_with(r"pattern `a:{id:x}`, byte 2: value that the regular expression"));
    assert!(message.contains(r"`{id}` given `\u{1b}\n"), "{message}");
    assert!(message.len() < 1000 && !message.contains(char::is_control), "{message}");
}

#[test]
fn types_can_be_shared_and_sent() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Pattern>();
    check::<Captures>();
    check::<PatternError>();
}
