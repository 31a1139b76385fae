//! Is there a key that two patterns of the same kinds of segments both match?

use std::collections::{HashMap, HashSet, VecDeque};

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::Pattern;
use crate::parse::{Kind, SEPARATOR};

/// What a capture without an expression of its own accepts.
pub(super) const ANYTHING: &str = r"\A(?s-u:.)+\z";

/// Bounds the memory, and thereby the time, that one automaton may take: room for `\w+` six times
/// over.
const AUTOMATON_BYTES: usize = 1 << 20;

/// The same for two of them in step.
const MAX_PAIRS: usize = 1 << 16;

/// The answer, for a segment as for a whole key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlap {
    /// There is none.
    Disjoint,
    /// There is; here is one of the shortest.
    Witness(Vec<u8>),
    /// Finding out would take more memory than it is worth.
    Undecided,
}

impl Pattern {
    /// Whether a key may match both, whatever the kinds of their segments: a no is sure.
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
            // All that follows fits into the rest.
            if [mine.kind, theirs.kind].contains(&Kind::Rest) {
                return true;
            }
        }
        mine.len() == theirs.len()
    }

    /// Segments are independent of each other, so two patterns have a common key exactly if they
    /// have a common segment at every position.
    pub(super) fn overlap(&self, other: &Self) -> Overlap {
        let mut parts = Vec::new();
        let mut decided = true;
        for (mine, theirs) in self.segments().iter().zip(other.segments()) {
            debug_assert_eq!(mine.kind, theirs.kind);
            let overlap = match (&mine.regex, &theirs.regex) {
                (Some(mine), Some(theirs)) => common_segment(mine.as_str(), theirs.as_str()),
                // Of any segments, one of the shortest.
                _ if !mine.is_literal() => Overlap::Witness(b"0".into()),
                _ if mine.text == theirs.text => Overlap::Witness(mine.text.clone().into()),
                _ => Overlap::Disjoint,
            };
            match overlap {
                // Also after an undecided position: one that is disjoint settles the matter.
                Overlap::Disjoint => return Overlap::Disjoint,
                Overlap::Witness(part) => parts.push(part),
                Overlap::Undecided => decided = false,
            }
        }
        if decided { Overlap::Witness(parts.join(&SEPARATOR)) } else { Overlap::Undecided }
    }
}

/// A shortest segment (no separator in it, and not empty) that both expressions match. They must be
/// anchored at both ends.
///
/// Decided exactly: both become automata, which read the same bytes in step, breadth first, until
/// both accept (the bytes read so far are then a shortest common match) or no new pair of states
/// turns up (there is no common match).
pub(super) fn common_segment(left: &str, right: &str) -> Overlap {
    match (automaton(left), automaton(right)) {
        (Some(left), Some(right)) => read_in_step(&left, &right),
        _ => Overlap::Undecided,
    }
}

type Dfa = dense::DFA<Vec<u32>>;
type Pair = (StateID, StateID);

/// With its first state. `None` if it would be too large, or needs to look around in ways that
/// automata cannot (`\b` in Unicode).
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
    // Each pair with the one before it on a shortest way, and the byte between them.
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

/// One byte of each class that both automata treat alike; the readable ones first, for the sake of
/// the witness.
fn alphabet(left: &Dfa, right: &Dfa) -> Vec<u8> {
    let mut classes = HashSet::new();
    let readable = (b'0'..=b'9').chain(b'a'..=b'z').chain(b'!'..=b'~');
    let bytes = readable.chain(0..=u8::MAX).filter(|&byte| byte != SEPARATOR);
    bytes.filter(|&b| classes.insert((left.byte_classes().get(b), right.byte_classes().get(b)))).collect()
}

/// The bytes that lead from one pair to another; at least one.
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
