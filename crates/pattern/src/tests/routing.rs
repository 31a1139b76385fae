//! Tests of the winning pattern, and of conflicts.

use crate::PatternConflict;
use crate::overlap::Overlap;
use crate::parse::Kind;
use crate::router::Router;
use crate::tests::pattern;

fn router(sources: &[&'static str]) -> Result<Router<&'static str>, PatternConflict> {
    let mut router = Router::new();
    for source in sources {
        router.insert(pattern(source), *source)?;
    }
    Ok(router)
}

#[test]
fn patterns_without_a_common_key_do_not_overlap() {
    let overlap = |one: &str, other: &str| {
        let (one, other) = (pattern(one), pattern(other));
        assert_eq!(one.may_overlap(&other), other.may_overlap(&one));
        one.may_overlap(&other)
    };
    for other in ["a:{id}", "a:{kind}:{id}", "a:b:{rest..}", "{x}:b:c", "a:{k:[b-d]}:{id}"] {
        assert_eq!(overlap("a:b:{id}", other), other != "a:{id}", "{other}");
    }
    for other in ["b:b:{id}", "a:{k:[c-d]}:{id}", "a:b", "a:b:{id}:x", "a:c:{rest..}"] {
        assert!(!overlap("a:b:{id}", other), "{other}");
    }
}

#[test]
fn the_first_difference_from_the_left_decides() {
    let sources = [
        "{all..}",
        "{a}:{b}:{c}",
        "{a:[a-z]+}:{b}:{c}",
        "app:{r..}",
        "app:{b}:{c}",
        "app:{b}:x",
        "app:{b:[a-z]+}:{c}",
        "app:order:{r..}",
        "app:order:{id}",
        "app:order:{id:[0-9]+}",
        "app:order:7",
    ];
    let table: [(&[u8], &str); 11] = [
        (b"app:order:7", "app:order:7"),
        (b"app:order:8", "app:order:{id:[0-9]+}"),
        (b"app:order:x", "app:order:{id}"),
        (b"app:order:8:y", "app:order:{r..}"),
        (b"app:user:x", "app:{b:[a-z]+}:{c}"),
        (b"app:USER:x", "app:{b}:x"),
        (b"app:USER:y", "app:{b}:{c}"),
        (b"app:user", "app:{r..}"),
        (b"web:user:x", "{a:[a-z]+}:{b}:{c}"),
        (b"WEB:user:x", "{a}:{b}:{c}"),
        (b"\xff", "{all..}"),
    ];
    assert!(Router::<()>::new().is_empty());
    let router = router(&sources).expect("no conflict");
    assert!(!router.is_empty());
    for (key, winner) in table {
        let (found, value) = router.route(key).expect("a route");
        assert_eq!((found.as_str(), *value), (winner, winner), "{}", key.escape_ascii());
    }
    assert_eq!(router.len(), sources.len());
    assert!(router.iter().map(|(_, value)| *value).eq(sources));
    for key in [&b""[..], b":", b"a::b", b"app:order:"] {
        assert!(router.route(key).is_none());
    }
}

#[test]
fn two_regexes_at_one_place_leave_the_choice_to_what_follows() {
    let sources = ["{a:[0-9]+}:{b}", "{a:[0-9a]+}:x"];
    for sources in [sources, [sources[1], sources[0]]] {
        let router = router(&sources).expect("no conflict");
        assert_eq!(router.route(b"1:x").map(|(_, v)| *v), Some("{a:[0-9a]+}:x"));
        assert_eq!(router.route(b"1:y").map(|(_, v)| *v), Some("{a:[0-9]+}:{b}"));
    }
}

#[test]
fn conflicts_show_a_common_key() {
    let table: [(&str, &str, &[u8]); 9] = [
        ("a:b", "a:b", b"a:b"),
        ("{{}}", "{{}}", b"{}"),
        ("a:{x}", "a:{y}", b"a:0"),
        ("a:{x}:b:{y..}", "a:{y}:b:{x..}", b"a:0:b:0"),
        ("{x:[0-9]+}", "{x:[0-9]{3}}", b"000"),
        ("{x:[a-f]+}", "{x:[e-z]+}", b"e"),
        ("{x:(ab)+}", "{x:(aba|b)+}", b"abab"),
        ("{x:.*q}", "{x:w.*}", b"wq"),
        (r"{x:\PL}", r"{x:\x00|\n}", b"\0"),
    ];
    for (one, two, witness) in table {
        let conflict = router(&[one, two]).err();
        let found = conflict.as_ref().and_then(PatternConflict::witness);
        assert_eq!(found, Some(witness), "{one} {two}: {conflict:?}");
    }
}

#[test]
fn disjoint_patterns_of_one_shape_stand_together() {
    let table = [
        ("a:{x}", "b:{x}"),
        ("{x}:a", "{x}:b"),
        ("{x:[0-9]+}", "{x:[a-z]+}"),
        ("{x:[0-9]{2}}", "{x:[0-9]{3}}"),
        ("{x:(aa)+}", "{x:a(aa)*}"),
        ("{x:(ab)+}", "{x:(ba)+}"),
        ("{x:[^a].*}", "{x:a.*}"),
        // The only common matches are not segments.
        ("{x:a*}", "{x:b*}"),
        ("{x:a?:?}", "{x:b?:?}"),
        // The first segments overlap, the second ones do not.
        ("{x:a+}:{y:b}", "{x:aa}:{y:c}"),
    ];
    for (one, two) in table {
        assert!(router(&[one, two]).is_ok(), "{one} {two}");
    }
}

#[test]
fn what_cannot_be_compared_is_a_conflict() {
    for regex in [r"\w{1,8}", r"\bx.*", "(?:a|b)*a(?:a|b){16}"] {
        let source = format!("a:{{x:{regex}}}");
        let mut router = Router::new();
        router.insert(pattern(&source), ()).expect("first");
        router.insert(pattern("b:{x:[0-9]+}"), ()).expect("other literal");
        let conflict = router.insert(pattern("a:{x:[0-9]+}"), ()).expect_err("undecided");
        assert_eq!(conflict.witness(), None);
        assert!(conflict.to_string().contains("too complex to be compared"));
        assert_eq!(router.len(), 2);
    }
}

/// Each automaton is small, but there are too many pairs of states.
#[test]
fn a_comparison_that_would_take_too_many_steps_is_given_up() {
    for (one, two) in [
        ("(?:a{251})*", "(?:a{263})*b"),
        ("[ab]*a[ab]{8}", "(?:[ab]{263})*c"),
        ("[ab]*a[ab]{8}", "(?:[ab]{257})*c"),
        ("[abc]*a[abc]{7}", "(?:[abc]{401})*d"),
    ] {
        let overlap = pattern(&format!("{{x:{one}}}")).overlap(&pattern(&format!("{{x:{two}}}")));
        assert_eq!(overlap, Overlap::Undecided, "{one} {two}");
    }
    let (one, two) = ("{x:(?:a{51})*}", "{x:(?:a{263})*b}");
    assert_eq!(pattern(one).overlap(&pattern(two)), Overlap::Disjoint, "13,413 pairs");
}

#[test]
fn conflict_messages_are_one_line() {
    let conflict = router(&["a:{x:\\n+}", "a:{x:\\s}"]).expect_err("both match a newline");
    let message = conflict.to_string();
    assert!(message.contains(r"`a:{x:\n+}` and `a:{x:\s}`"), "{message}");
    assert!(message.contains(r"the key `a:\n`"), "{message}");
    assert!(!message.contains(char::is_control));
}

/// With equal digests, a look-up would try all patterns with the same kinds one after the other.
#[test]
fn a_digest_tells_literals_apart_wherever_they_are_cut() {
    let router = Router::<()>::new();
    let digest = |kinds: &[Kind], key: &[u8]| router.digest(kinds, key);
    assert_ne!(digest(&[Kind::Literal, Kind::Plain], b"a:x"), digest(&[Kind::Literal, Kind::Plain], b"b:x"));
    assert_ne!(digest(&[Kind::Literal; 2], b"ab:c"), digest(&[Kind::Literal; 2], b"a:bc"));
    let around = |key| digest(&[Kind::Literal, Kind::Plain, Kind::Literal], key);
    assert_eq!(around(b"a:7:b"), around(b"a:x:b"));
    assert_ne!(around(b"a:7:b"), around(b"a:7:c"));
    assert_eq!(digest(&[Kind::Literal, Kind::Rest], b"a:7:b"), digest(&[Kind::Literal, Kind::Rest], b"a:x"));
}

#[test]
fn thousands_of_patterns() {
    let mut router = Router::new();
    for n in 0..3000 {
        router.insert(pattern(&format!("app:kind{n}:{{id}}")), n).expect("all different");
    }
    for n in [0, 1234, 2999] {
        let key = format!("app:kind{n}:7");
        assert_eq!(router.route(key.as_bytes()).map(|(_, value)| *value), Some(n));
    }
    assert!(router.route(b"app:kind3000:7").is_none());
}
