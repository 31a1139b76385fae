//! Properties of all patterns and keys, tested with random ones.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use regex::bytes::Regex;

use crate::Pattern;
use crate::oracle::{Spec, short_strings};
use crate::overlap::{Overlap, common_segment};
use crate::router::Router;
use crate::tests::{pattern, strategies};

/// Returns strings that resemble patterns.
fn nearly_a_pattern() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "{", "}", ":", "..", "a", "{id}", "{r..}", "{n:", r"\", "[", "]", "(", ")", "*", "?", "é", "\n",
        "0-9", "{2,3}", "|", "+", "^", "$", "<", ">", r"\p{L}", "(?x)", "#", "\u{202e}", "{{", "}}",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn check_parse(source: &str) {
    match Pattern::new(source) {
        Ok(pattern) => {
            assert_eq!(pattern.as_str(), source);
            assert!(!pattern.is_match(b""));
        }
        Err(error) => {
            assert_eq!(error.pattern(), source);
            assert!(source.is_char_boundary(error.offset()));
            let message = error.to_string();
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }
}

/// Returns a router with the patterns that do not conflict with an earlier one.
fn fill(specs: &[(usize, Spec)]) -> Router<usize> {
    let mut router = Router::new();
    for (number, spec) in specs {
        let Err(conflict) = router.insert(pattern(&spec.source()), *number) else {
            continue;
        };
        let common = conflict.witness().expect("the oracle's expressions are simple");
        assert!(conflict.existing().is_match(common) && conflict.rejected().is_match(common));
    }
    router
}

/// Returns the winner by the documented rule: the matching pattern whose kinds are first.
fn winner(specs: &[(usize, Spec)], router: &Router<usize>, key: &[u8]) -> Option<usize> {
    let inserted: Vec<_> = router.iter().map(|(_, number)| *number).collect();
    let matching = specs.iter().filter(|(n, spec)| inserted.contains(n) && spec.matches(key).is_some());
    let best = matching.clone().map(|(_, spec)| spec.kinds()).min()?;
    let mut winners = matching.filter(|(_, spec)| spec.kinds() == best);
    let winner = winners.next().map(|(number, _)| *number);
    assert!(winners.next().is_none(), "two equally specific patterns match {}", key.escape_ascii());
    winner
}

/// Returns numbered patterns, and keys that match some of them or nearly do.
fn specs_and_keys() -> impl Strategy<Value = (Vec<(usize, Spec)>, Vec<Vec<u8>>)> {
    prop::collection::vec(strategies::spec(), 1..12).prop_flat_map(|specs| {
        let near = Union::new(specs.iter().map(|spec| strategies::key_near(spec).boxed()));
        let numbered = specs.into_iter().enumerate().collect::<Vec<_>>();
        (Just(numbered), prop::collection::vec(near, 20))
    })
}

/// Returns small expressions over a small alphabet, which have a common match in some cases but not in most.
fn small_regex() -> impl Strategy<Value = String> {
    let atom = select(vec![
        "a",
        "b",
        "0",
        "[ab]",
        "[^a]",
        ".",
        ":",
        "^",
        "$",
        r"(?-u:\b)",
        r"(?-u:\xff)",
        "(?s-u:.)",
    ]);
    atom.prop_map(str::to_owned).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
            (inner, select(vec!["*", "+", "?", "{2}"])).prop_map(|(a, op)| format!("(?:{a}){op}")),
        ]
    })
}

proptest! {
    #[test]
    fn parsing_never_panics(source in any::<String>()) {
        check_parse(&source);
    }

    #[test]
    fn parsing_what_looks_like_a_pattern_never_panics(source in nearly_a_pattern()) {
        check_parse(&source);
    }

    #[test]
    fn matching_any_bytes_never_panics(spec in strategies::spec(), key in any::<Vec<u8>>()) {
        let pattern = pattern(&spec.source());
        let values = spec.matches(&key);
        prop_assert_eq!(pattern.is_match(&key), values.is_some());
    }

    #[test]
    fn matches_as_the_oracle_does(
        (spec, key) in strategies::spec().prop_flat_map(|spec| (Just(spec.clone()), prop_oneof![
            4 => strategies::key_near(&spec),
            1 => strategies::key(),
        ])),
    ) {
        let pattern = pattern(&spec.source());
        let captures = pattern.matches(&key);
        let values = captures.as_ref();
        let values = values.map(|c| c.iter().map(|(_, v)| v.to_vec()).collect::<Vec<_>>());
        prop_assert_eq!(&values, &spec.matches(&key));
        prop_assert_eq!(pattern.is_match(&key), values.is_some());
        if let Some(values) = values {
            prop_assert!(key.starts_with(pattern.literal_prefix().as_bytes()));
            prop_assert_eq!(pattern.build(&values), Ok(key));
        }
    }

    #[test]
    fn builds_exactly_what_comes_back(
        spec in strategies::spec(),
        mut values in prop::collection::vec(
            prop_oneof![3 => strategies::segment(), 1 => strategies::key()],
            4,
        ),
    ) {
        let pattern = pattern(&spec.source());
        values.truncate(pattern.capture_names().count());
        let key = spec.join(&values);
        let comes_back = spec.matches(&key).as_ref() == Some(&values);
        prop_assert_eq!(pattern.build(&values).ok(), comes_back.then_some(key));
    }

    #[test]
    fn routes_by_the_written_rule((specs, keys) in specs_and_keys()) {
        let router = fill(&specs);
        for key in &keys {
            let routed = router.route(key).map(|(_, number)| *number);
            prop_assert_eq!(routed, winner(&specs, &router, key));
        }
    }

    #[test]
    fn patterns_that_match_one_key_may_overlap((specs, keys) in specs_and_keys()) {
        let patterns: Vec<_> = specs.iter().map(|(_, spec)| pattern(&spec.source())).collect();
        for key in &keys {
            let matching: Vec<_> = patterns.iter().filter(|pattern| pattern.is_match(key)).collect();
            for (one, other) in matching.iter().zip(matching.iter().skip(1)) {
                prop_assert!(one.may_overlap(other) && other.may_overlap(one), "{one} {other}");
            }
        }
    }

    #[test]
    fn order_of_insertion_does_not_matter(
        (specs, mut shuffled, keys) in specs_and_keys().prop_flat_map(|(specs, keys)| {
            (Just(specs.clone()), Just(specs).prop_shuffle(), Just(keys))
        }),
    ) {
        let first = fill(&specs);
        shuffled.retain(|(n, _)| first.iter().any(|(_, number)| number == n));
        let second = fill(&shuffled);
        prop_assert_eq!(second.len(), first.len());
        for key in &keys {
            prop_assert_eq!(first.route(key), second.route(key));
        }
    }

    #[test]
    fn common_matches_are_found_exactly(left in small_regex(), right in small_regex()) {
        let anchored = |regex: &str| format!(r"\A(?:{regex})\z");
        let (left, right) = (anchored(&left), anchored(&right));
        let compiled = [&left, &right].map(|regex| Regex::new(regex).expect("a sound regex"));
        let common = |s: &[u8]| compiled.iter().all(|regex| regex.is_match(s));
        let mut strings = short_strings(*b"ab0\n\xff");
        match common_segment(&left, &right) {
            Overlap::Witness(found) => {
                prop_assert!(!found.is_empty() && !found.contains(&b':') && common(&found));
                prop_assert!(!strings.any(|s| s.len() < found.len() && common(&s)));
            }
            Overlap::Disjoint => prop_assert!(!strings.any(|s| common(&s))),
            Overlap::Undecided => prop_assert!(false, "small expressions are decided"),
        }
    }
}
