//! Finds a key that two patterns with the same kinds of segments both match.

use std::collections::{HashMap, HashSet, VecDeque};

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::Pattern;
use crate::parse::{Kind, SEPARATOR};

/// The expression of a capture that has none of its own.
pub(super) const ANYTHING: &str = r"\A(?s-u:.)+\z";

/// The memory limit of one automaton, which also limits its time. `\w+` needs a sixth of it.
const AUTOMATON_BYTES: usize = 1 << 20;

/// The most pairs of states of two automata, which limits the memory and time of a comparison.
const MAX_PAIRS: usize = 1 << 16;

/// The result of a comparison of two segments or two patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlap {
    /// There is no common match.
    Disjoint,
    /// A shortest common match.
    Witness(Vec<u8>),
    /// The comparison would exceed its limits.
    Undecided,
}

impl Pattern {
    /// Returns false if no key matches both patterns. True does not prove a common key. The patterns may have segments of
    /// different kinds.
    #[doc(hidden)]
    pub fn may_overlap(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.segments(), other.segments());
        for (mine, theirs) in mine.iter().zip(theirs) {
            let fits = match (mine.is_literal(), theirs.is_literal()) {
                (true, _) => theirs.fault(mine.text.as_bytes()).is_none(),
                (false, true) => mine.fault(theirs.text.as_bytes()).is_none(),
                (false, false) => true,
            };
            if !fits {
                return false;
            }
            // A rest matches all remaining segments.
            if [mine.kind, theirs.kind].contains(&Kind::Rest) {
                return true;
            }
        }
        mine.len() == theirs.len()
    }

    /// Finds a common key of two patterns with the same kinds of segments. Segments are independent of each other, so a
    /// common key exists exactly if a common segment exists at every position.
    pub(super) fn overlap(&self, other: &Self) -> Overlap {
        let mut parts = Vec::new();
        let mut decided = true;
        for (mine, theirs) in self.segments().iter().zip(other.segments()) {
            debug_assert_eq!(mine.kind, theirs.kind);
            let overlap = match (&mine.regex, &theirs.regex) {
                (Some(mine), Some(theirs)) => common_segment(mine.as_str(), theirs.as_str()),
                // Both captures match any segment.
                _ if !mine.is_literal() => Overlap::Witness(b"0".into()),
                _ if mine.text == theirs.text => Overlap::Witness(mine.text.clone().into()),
                _ => Overlap::Disjoint,
            };
            match overlap {
                // A disjoint position decides the result, even after an undecided one.
                Overlap::Disjoint => return Overlap::Disjoint,
                Overlap::Witness(part) => parts.push(part),
                Overlap::Undecided => decided = false,
            }
        }
        if decided { Overlap::Witness(parts.join(&SEPARATOR)) } else { Overlap::Undecided }
    }
}

/// Finds a shortest segment (without a separator, and not empty) that both expressions match. The expressions must be
/// anchored at both ends.
///
/// The result is exact. Both expressions become automata, which read the same bytes in a breadth-first search over pairs of
/// states. It ends when both accept, and the bytes are a shortest common match; or when there is no new pair, and no common
/// match exists.
pub(super) fn common_segment(left: &str, right: &str) -> Overlap {
    match (automaton(left), automaton(right)) {
        (Some(left), Some(right)) => read_in_step(&left, &right),
        _ => Overlap::Undecided,
    }
}

type Dfa = dense::DFA<Vec<u32>>;
type Pair = (StateID, StateID);

/// Returns the automaton of an expression, and its start state. Returns `None` if it would be too large, or if the
/// expression has an assertion that automata do not support, such as the Unicode `\b`.
fn automaton(regex: &str) -> Option<(Dfa, StateID)> {
    let dfa = dense::Config::new()
        .accelerate(false)
        .start_kind(StartKind::Anchored)
        .dfa_size_limit(Some(AUTOMATON_BYTES))
        .determinize_size_limit(Some(AUTOMATON_BYTES));
    let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(AUTOMATON_BYTES));
    let syntax = syntax::Config::new().utf8(false);
    let automaton = dense::Builder::new().configure(dfa).thompson(nfa).syntax(syntax).build(regex).ok()?;
    let start = automaton.start_state_forward(&Input::new("").anchored(Anchored::Yes)).ok()?;
    Some((automaton, start))
}

fn read_in_step((left, first): &(Dfa, StateID), (right, second): &(Dfa, StateID)) -> Overlap {
    let accepts = |automaton: &Dfa, state| automaton.is_match_state(automaton.next_eoi_state(state));
    let alphabet = alphabet(left, right);
    let start = (*first, *second);
    let mut waiting = VecDeque::from([start]);
    // For each pair its predecessor on a shortest path, and the byte of the step.
    let mut reached = HashMap::new();
    while let Some(pair) = waiting.pop_front() {
        for &byte in &alphabet {
            let next = (left.next_state(pair.0, byte), right.next_state(pair.1, byte));
            let dead = left.is_dead_state(next.0) || right.is_dead_state(next.1);
            if dead || reached.contains_key(&next) {
                continue;
            }
            reached.insert(next, (pair, byte));
            if accepts(left, next.0) && accepts(right, next.1) {
                return Overlap::Witness(spell(&reached, start, next));
            }
            waiting.push_back(next);
        }
        if reached.len() >= MAX_PAIRS {
            return Overlap::Undecided;
        }
    }
    Overlap::Disjoint
}

/// Returns one byte of each class of bytes that neither automaton distinguishes. Readable bytes come first, which makes the
/// common match readable.
fn alphabet(left: &Dfa, right: &Dfa) -> Vec<u8> {
    let mut classes = HashSet::new();
    let readable = (b'0'..=b'9').chain(b'a'..=b'z').chain(b'!'..=b'~');
    let bytes = readable.chain(0..=u8::MAX).filter(|&byte| byte != SEPARATOR);
    bytes.filter(|&b| classes.insert((left.byte_classes().get(b), right.byte_classes().get(b)))).collect()
}

/// Returns the bytes on the path from one pair to another, of which there is at least one.
fn spell(reached: &HashMap<Pair, (Pair, u8)>, start: Pair, end: Pair) -> Vec<u8> {
    let (mut at, byte) = reached[&end];
    let mut bytes = vec![byte];
    while at != start {
        let (before, byte) = reached[&at];
        bytes.push(byte);
        at = before;
    }
    bytes.reverse();
    bytes
}
