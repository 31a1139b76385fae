//! What servers have announced that others had replaced, until it is known which of these keys are gone.
//!
//! Pure: no clock, no server.

use std::mem;

use bytes::Bytes;

use crate::wire::NodeId;

/// Bytes of keys that are kept at most, and what a key takes besides, about.
const MOST: usize = 64 << 20;
const BESIDE_KEY: usize = 32;

/// All of it that one reader keeps, by who has announced it.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    all: Vec<(NodeId, Vec<Bytes>)>,
    bytes: usize,
}

impl Replaced {
    /// How many of these keys found no room.
    pub(super) fn keep(&mut self, by: NodeId, mut keys: Vec<Bytes>) -> usize {
        let fits = |key: &Bytes| {
            let bytes = self.bytes + key.len() + BESIDE_KEY;
            let fits = bytes <= MOST;
            if fits {
                self.bytes = bytes;
            }
            fits
        };
        let before = keys.len();
        keys.retain(fits);
        let lost = before - keys.len();
        if !keys.is_empty() {
            self.all.push((by, keys));
        }
        lost
    }

    /// All of it; nothing is left.
    pub(super) fn take(&mut self) -> Vec<(NodeId, Vec<Bytes>)> {
        self.bytes = 0;
        mem::take(&mut self.all)
    }

    /// No more than so many, all by one.
    pub(super) fn take_some(&mut self, most: usize) -> Option<(NodeId, Vec<Bytes>)> {
        let (by, keys) = self.all.last_mut()?;
        let (by, some) = (*by, keys.split_off(keys.len().saturating_sub(most)));
        if keys.is_empty() {
            self.all.pop();
        }
        self.bytes -= some.iter().map(|key| key.len() + BESIDE_KEY).sum::<usize>();
        Some((by, some))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many keys these are.
    pub(super) fn len(&self) -> usize {
        self.all.iter().map(|(_, keys)| keys.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_told_and_there_is_room_again_when_all_is_taken() {
        let (mut replaced, key) = (Replaced::default(), Bytes::from(vec![0; 4096]));
        let fitting = MOST / (4096 + BESIDE_KEY);
        for _ in 0..2 {
            assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone(); fitting - 1]), 0);
            assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone(); 3]), 2);
            assert_eq!(replaced.keep(NodeId::NONE, vec![key.clone()]), 1);
            assert_eq!(replaced.len(), fitting);
            let taken: usize = replaced.take().iter().map(|(_, keys)| keys.len()).sum();
            assert_eq!((taken, replaced.is_empty()), (fitting, true));
        }
    }
}
