//! In which order writes are made: notes first, and of each key what came first.
//!
//! A note that waits keeps a handler waiting, and an enrolment nobody. But a note ends what was enrolled before it,
//! so what names the same key goes before.

use std::collections::{HashMap, VecDeque};
use std::mem::discriminant;
use std::time::Duration;

use bytes::Bytes;

use super::{Write, Writing};

/// Writes in one call, at most: everybody else waits for the server meanwhile, and in a flood of notes the claims of
/// what was noted before, and its acks.
const FEW: usize = 64;
/// But what takes long is the line and not the writes, and then so many go at once: about 5 ms of the server's.
const MANY: usize = 250;
/// How long the last call has taken then. A server that is flooded takes that long for a few notes, too.
const LONG: Duration = Duration::from_millis(20);
const LONG_FOR_NOTES: Duration = Duration::from_millis(100);
/// Bytes in one call, about.
const CALL_BYTES: usize = 1 << 20;

/// What waits to be written, by the number of its arrival.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    notes: VecDeque<(u64, Writing)>,
    others: VecDeque<(u64, Writing)>,
    arrived: u64,
    /// How long the last call took, of notes and of others.
    noting: Duration,
    writing: Duration,
}

impl Waiting {
    pub(super) fn push(&mut self, writing: Writing) {
        self.arrived += 1;
        let queue = if matches!(writing.what, Write::Note(_)) { &mut self.notes } else { &mut self.others };
        queue.push_back((self.arrived, writing));
    }

    /// The last call of notes took so long.
    pub(super) fn noted_in(&mut self, took: Duration) {
        self.noting = took;
    }

    /// And the last of others.
    pub(super) fn wrote_in(&mut self, took: Duration) {
        self.writing = took;
    }

    /// Gives up all but notes.
    pub(super) fn keep_notes(&mut self) {
        self.others.clear();
    }

    /// What is to be written next, in one call: all of a kind; nothing if nothing waits.
    pub(super) fn next(&mut self) -> Vec<Writing> {
        if self.notes.is_empty() {
            return first_call(&mut self.others, most(self.writing, LONG));
        }
        let (count, named) = self.named();
        let before = self.take_before(&named);
        if before.is_empty() { self.notes.drain(..count).map(|(_, note)| note).collect() } else { before }
    }

    /// The next notes: how many, and when the first of each of their keys came. A key's second note is not among
    /// them where something else of that key came between the two.
    fn named(&self) -> (usize, HashMap<Bytes, u64>) {
        let most = most(self.noting, LONG_FOR_NOTES);
        let mut named = HashMap::new();
        for (number, writing) in self.notes.iter().take(most) {
            if let Some(key) = writing.what.key() {
                named.entry(key.clone()).or_insert(*number);
            }
        }
        // The first of all others that names such a key after its first note. One that comes behind all of a key's notes
        // parts none of them.
        let mut parted: HashMap<&Bytes, u64> = HashMap::new();
        for (number, writing) in &self.others {
            let key = writing.what.key().filter(|key| named.get(*key).is_some_and(|first| first < number));
            key.map(|key| parted.entry(key).or_insert(*number));
        }
        let is_next = |(number, writing): &&(u64, Writing)| {
            let other = writing.what.key().and_then(|key| parted.get(key));
            other.is_none_or(|other| number < other)
        };
        let count = self.notes.iter().take(most).take_while(is_next).count();
        (count, named)
    }

    /// Takes out what came before the notes of its key, as far as that is one call.
    fn take_before(&mut self, named: &HashMap<Bytes, u64>) -> Vec<Writing> {
        let goes_before = |(number, writing): &(u64, Writing)| {
            writing.what.key().and_then(|key| named.get(key)).is_some_and(|note| number < note)
        };
        let (mut before, mut rest) = (VecDeque::new(), VecDeque::new());
        if !self.others.iter().any(goes_before) {
            return Vec::new();
        }
        for one in self.others.drain(..) {
            if goes_before(&one) { before.push_back(one) } else { rest.push_back(one) }
        }
        let call = first_call(&mut before, most(self.writing, LONG));
        rest.extend(before);
        rest.make_contiguous().sort_by_key(|(number, _)| *number);
        self.others = rest;
        call
    }
}

/// How many go in a call, where the last took so long.
fn most(took: Duration, long: Duration) -> usize {
    if took < long { FEW } else { MANY }
}

/// The first of one kind, as many as fit into a call. Whoever waits for the end of a reading waits for that of the call:
/// else readings of a key each would take a call each.
fn first_call(queue: &mut VecDeque<(u64, Writing)>, most: usize) -> Vec<Writing> {
    let (mut call, mut writes, mut bytes, mut kind) = (Vec::new(), 0, 0, None);
    while let Some((_, writing)) = queue.front() {
        if !matches!(writing.what, Write::Done(_)) {
            writes += 1;
            bytes += writing.what.bytes();
            let is_of_its_kind =
                *kind.get_or_insert(discriminant(&writing.what)) == discriminant(&writing.what);
            let fits = writes == 1 || writes <= most && bytes <= CALL_BYTES;
            if !(is_of_its_kind && fits) {
                break;
            }
        }
        call.extend(queue.pop_front().map(|(_, writing)| writing));
    }
    call
}

#[cfg(test)]
mod tests;
