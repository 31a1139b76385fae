//! Keys that were heard to change, until they are read.
//!
//! That a key was written is a hint to read it, and nothing else: where the hint stands in the stream says nothing,
//! as the reading has a place of its own. So hints do not queue among events. They are kept here, each key once,
//! however often it is written, and at most so many bytes of them.

use std::collections::HashMap;
use std::mem;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::backlog::ByteBounded;
use crate::lock::lock;

/// What waits takes so many bytes at most: with short names, 140,000 keys.
const BYTES: usize = 16 << 20;
/// About what a key costs beside its own bytes.
const EACH: usize = 96;

/// Why a key is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Prompt {
    /// It was heard to change.
    Changed,
    /// Somebody has to know more of it, its value above all.
    Wanted,
}

/// The keys that wait, and those who wait for them.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug)]
struct Waiting {
    keys: ByteBounded<HashMap<Bytes, Prompt>>,
    dropped: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { keys: ByteBounded::new(BYTES, EACH), dropped: 0 }
    }
}

/// What has waited.
#[derive(Debug)]
pub(crate) struct Prompted {
    pub(crate) keys: HashMap<Bytes, Prompt>,
    /// How many found no room.
    pub(crate) dropped: usize,
}

impl Prompts {
    /// A key was heard to be written. Never waits.
    pub(crate) fn hear(&self, key: Bytes) {
        self.add(key, Prompt::Changed);
    }

    /// Has a key read. One that waits already is read once.
    pub(crate) fn add(&self, key: Bytes, why: Prompt) {
        let mut waiting = lock(&self.waiting);
        let first = waiting.keys.is_empty();
        if let Some(there) = waiting.keys.get_mut(&key) {
            if why == Prompt::Wanted {
                *there = why;
            }
        } else if waiting.keys.take_room(&key) {
            waiting.keys.insert(key, why);
        } else {
            waiting.dropped += 1;
        }
        drop(waiting);
        if first {
            self.news.notify_one();
        }
    }

    /// So many others found no room, where they had to wait.
    pub(crate) fn leave_out(&self, count: usize) {
        lock(&self.waiting).dropped += count;
        self.news.notify_one();
    }

    /// Waits until there are any.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// All that wait.
    pub(crate) fn take(&self) -> Prompted {
        let mut waiting = lock(&self.waiting);
        Prompted { keys: waiting.keys.take_all(), dropped: mem::take(&mut waiting.dropped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_written_over_and_over_waits_once_and_what_is_wanted_stays_so() {
        let prompts = Prompts::default();
        for why in [Prompt::Changed, Prompt::Wanted, Prompt::Changed] {
            prompts.add("a".into(), why);
        }
        prompts.hear("b".into());
        prompts.hear("b".into());
        let Prompted { keys, dropped } = prompts.take();
        assert_eq!(keys, [("a".into(), Prompt::Wanted), ("b".into(), Prompt::Changed)].into());
        assert_eq!((dropped, prompts.take().keys.len()), (0, 0));
    }

    #[test]
    fn prompts_take_bounded_bytes_and_what_is_dropped_is_counted() {
        let prompts = Prompts::default();
        let key = |number: u32| Bytes::from(format!("{number:04000}"));
        let fitting = u32::try_from(BYTES / (4000 + EACH)).expect("few");
        (0..fitting + 3).for_each(|number| prompts.hear(key(number)));
        prompts.hear(key(0));
        let Prompted { keys, dropped } = prompts.take();
        assert_eq!((keys.len(), dropped), (fitting as usize, 3), "one that waits already is not dropped");
        prompts.hear(key(1));
        prompts.leave_out(2);
        let Prompted { keys, dropped } = prompts.take();
        assert_eq!((keys.len(), dropped), (1, 2), "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_hears_of_the_first_key() {
        let prompts = Prompts::default();
        prompts.hear("a".into());
        prompts.news().await;
        prompts.take();
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, prompts.news()).await.is_err(), "there is no news");
        prompts.hear("b".into());
        prompts.news().await;
        prompts.take();
        prompts.leave_out(1);
        prompts.news().await;
    }
}
