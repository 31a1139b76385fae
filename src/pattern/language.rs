//! Have two regular expressions a common match?
//!
//! Decided exactly: both become automata, which read the same bytes in step, breadth first, until
//! both accept (the bytes read so far are then a shortest common match) or no new pair of states
//! turns up (there is no common match).

use std::collections::HashSet;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::pattern::SEPARATOR;
use crate::pattern::overlap::Overlap;

/// What a capture without an expression of its own accepts.
pub(super) const ANYTHING: &str = r"\A(?s-u:.)+\z";

/// Bounds the memory, and thereby the time, that one automaton may take: room for `\w+` six times
/// over.
const AUTOMATON_BYTES: usize = 1 << 20;

/// The same for the two of them in step.
const MAX_PAIRS: usize = 1 << 16;

type Dfa = dense::DFA<Vec<u32>>;
type Pair = (StateID, StateID);

/// A shortest segment (no separator in it, and not empty) that both expressions match. They must be
/// anchored at both ends.
pub(super) fn common_segment(left: &str, right: &str) -> Overlap {
    match (automaton(left), automaton(right)) {
        (Some(left), Some(right)) => Product { left, right }.shortest(),
        _ => Overlap::Undecided,
    }
}

/// `None` if it would be too large, or needs to look around in ways that automata cannot (`\b` in
/// Unicode).
fn automaton(regex: &str) -> Option<Dfa> {
    let dfa = dense::Config::new()
        .accelerate(false)
        .start_kind(StartKind::Anchored)
        .dfa_size_limit(Some(AUTOMATON_BYTES))
        .determinize_size_limit(Some(AUTOMATON_BYTES));
    let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(AUTOMATON_BYTES));
    dense::Builder::new()
        .configure(dfa)
        .thompson(nfa)
        .syntax(syntax::Config::new().utf8(false))
        .build(regex)
        .ok()
}

/// Two automata that read the same bytes.
struct Product {
    left: Dfa,
    right: Dfa,
}

/// A pair of states, and how it was reached.
struct Step {
    states: Pair,
    byte: u8,
    from: usize,
}

impl Product {
    fn shortest(&self) -> Overlap {
        let Some(start) = self.start() else {
            return Overlap::Undecided;
        };
        let alphabet = self.alphabet();
        let mut steps = vec![Step { states: start, byte: 0, from: 0 }];
        let mut seen = HashSet::new();
        let mut at = 0;
        while at < steps.len() {
            for &byte in &alphabet {
                let Some(states) = self.next(steps[at].states, byte) else {
                    continue;
                };
                if !seen.insert(states) {
                    continue;
                }
                steps.push(Step { states, byte, from: at });
                if self.accepts(states) {
                    return Overlap::Witness(spell(&steps));
                }
            }
            if steps.len() > MAX_PAIRS {
                return Overlap::Undecided;
            }
            at += 1;
        }
        Overlap::Disjoint
    }

    fn start(&self) -> Option<Pair> {
        let input = Input::new("").anchored(Anchored::Yes);
        let left = self.left.start_state_forward(&input).ok()?;
        let right = self.right.start_state_forward(&input).ok()?;
        Some((left, right))
    }

    /// `None` if one of them can never accept any more.
    fn next(&self, (left, right): Pair, byte: u8) -> Option<Pair> {
        let left = self.left.next_state(left, byte);
        let right = self.right.next_state(right, byte);
        let alive = !self.left.is_dead_state(left) && !self.right.is_dead_state(right);
        alive.then_some((left, right))
    }

    fn accepts(&self, (left, right): Pair) -> bool {
        self.left.is_match_state(self.left.next_eoi_state(left))
            && self.right.is_match_state(self.right.next_eoi_state(right))
    }

    /// One byte of each class that both automata treat alike; the readable ones first, for the sake
    /// of the witness.
    fn alphabet(&self) -> Vec<u8> {
        let (left, right) = (self.left.byte_classes(), self.right.byte_classes());
        let mut classes = HashSet::new();
        let readable = (b'0'..=b'9').chain(b'a'..=b'z').chain(b'!'..=b'~');
        readable
            .chain(0..=u8::MAX)
            .filter(|&byte| byte != SEPARATOR)
            .filter(|&byte| classes.insert((left.get(byte), right.get(byte))))
            .collect()
    }
}

/// The bytes that led to the last step.
fn spell(steps: &[Step]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = steps.len() - 1;
    while at > 0 {
        bytes.push(steps[at].byte);
        at = steps[at].from;
    }
    bytes.reverse();
    bytes
}
