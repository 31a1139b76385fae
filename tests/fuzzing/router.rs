//! Some patterns, one a line: the router against trying all short keys on a naive matcher.

use crate::fuzzing::assert_fit_for_a_log;
use crate::fuzzing::grammar::{self, Matcher};
use crate::fuzzing::oracle::{Kind, short_strings};
use keylapse_pattern::Pattern;
use keylapse_pattern::Router;

/// What the keys are made of.
const BYTES: [u8; 5] = *b"ab0:\xff";
/// More would cost time and find nothing that four do not.
const PATTERNS: usize = 4;

/// A conflict has a witness, no conflict has none, and of what matches the most specific one wins.
pub(crate) fn router(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let mut router = Router::new();
    let mut routes: Vec<Matcher> = Vec::new();
    for pattern in text.lines().take(PATTERNS).filter_map(|line| Pattern::new(line).ok()) {
        let naive = naive(&pattern);
        let mut peers = routes.iter().filter(|route| route.kinds() == naive.kinds());
        let rival = short_strings(BYTES)
            .find(|key| naive.matches(key) && peers.clone().any(|peer| peer.matches(key)));
        match router.insert(pattern, routes.len()) {
            Ok(()) => {
                assert_eq!(rival, None, "{router:?}");
                routes.push(naive);
            }
            Err(conflict) => {
                assert_fit_for_a_log(&conflict.to_string(), 6000);
                assert_eq!(naive_kinds(conflict.existing()), naive.kinds());
                let Some(witness) = conflict.witness() else { continue };
                assert!(naive.matches(witness) && peers.any(|peer| peer.matches(witness)), "{conflict}");
            }
        }
    }
    for key in short_strings(BYTES) {
        let matching = (0..routes.len()).filter(|&at| routes[at].matches(&key));
        let winner = matching.min_by_key(|&at| routes[at].kinds());
        assert_eq!(router.route(&key).map(|(_, at)| *at), winner, "{router:?} {}", key.escape_ascii());
    }
}

fn naive(pattern: &Pattern) -> Matcher {
    let segments = grammar::read(pattern.as_str()).expect("a pattern");
    Matcher::new(&segments).expect("its expressions compile")
}

fn naive_kinds(pattern: &Pattern) -> Vec<Kind> {
    naive(pattern).kinds()
}
