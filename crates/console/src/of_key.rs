//! What a topic has of one key: its timer, its dead letters, and its enrolment.

use bytes::Bytes;

use crate::entry::{read, read_letter, read_watch};
use crate::error::Result;
use crate::wire::{Look, PageMember};
use crate::{Entry, EntryState, KnownTopic};

impl KnownTopic {
    /// A key's timer, with up to so many bytes of its payload.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn timer(&self, key: &[u8], payload: Option<usize>) -> Result<Option<Entry>> {
        Ok(self.look(key).await?.map(|look| self.entry_of(key, look, payload)))
    }

    /// The dead letters of a key, the newest first. All letters of its partition are gone through by name, 500 in
    /// a step.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    #[allow(clippy::cast_precision_loss)] // below 2^43
    pub async fn letters_of(&self, key: &[u8], payload: Option<usize>) -> Result<Vec<Entry>> {
        let at = self.partition_of(key);
        let (store, keep) = (self.console.store(), payload.unwrap_or(0));
        let found = self.console.persist(|_| store.letters_of_key(at, key)).await?;
        let letter = |(name, letter, died): (Bytes, Bytes, u64)| {
            let member = PageMember {
                name,
                score: died as f64,
                size: letter.len() as u64,
                what: Some(letter),
                state: None,
            };
            read_letter(self, at.index, member, payload.map(|_| keep))
        };
        let mut letters: Vec<_> = found.into_iter().filter_map(letter).collect();
        letters.sort_by(|a, b| b.at_ms.cmp(&a.at_ms).then_with(|| b.name.cmp(&a.name)));
        Ok(letters)
    }

    pub(super) async fn look(&self, key: &[u8]) -> Result<Option<Look>> {
        let (store, at) = (self.console.store(), self.partition_of(key));
        self.console.persist(|_| store.look_if_made(at, key)).await.map_err(|error| error.at_key(key))
    }

    /// A key of an attached topic, if it is enrolled.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn enrolment(&self, key: &[u8]) -> Result<Option<Entry>> {
        if !self.is_attached() {
            return Ok(None);
        }
        let (store, at) = (self.console.store(), self.partition_of(key));
        let found = self.console.persist(|_| store.watch_of_key(at, key)).await?;
        Ok(found.map(|(watch, score)| {
            let name = Bytes::copy_from_slice(key);
            read_watch(self, at.index, PageMember { name, score, size: 0, what: Some(watch), state: None })
        }))
    }

    #[allow(clippy::cast_precision_loss)] // below 2^43
    pub(super) fn entry_of(&self, key: &[u8], look: Look, payload: Option<usize>) -> Entry {
        let at = self.partition_of(key).index;
        let lost = look.score.is_none();
        let member = PageMember {
            name: Bytes::copy_from_slice(key),
            score: look.score.unwrap_or_default() as f64,
            size: look.record.len() as u64,
            what: Some(look.record),
            state: look.state,
        };
        let entry = read(self, at, member, payload).judged_at(look.stamp.ms());
        match look.quarantined {
            true => Entry { state: EntryState::Quarantined, ..entry },
            false if lost => Entry { state: EntryState::Waiting, ..entry },
            false => entry,
        }
    }
}
