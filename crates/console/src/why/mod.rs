//! Why a key's timer has run, will run, or does not.

mod tell;

use bytes::Bytes;
use serde::Serialize;

use crate::error::Result;
use crate::wire::{ListenerReport, Record};
use crate::{Console, Entry, JournalEntry, KnownTopic, text};

/// Letters and ends of a key that are shown.
const SHOWN: usize = 10;

/// What is known of a key in one topic.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Why {
    /// The topic.
    pub topic: String,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// Its timer, if it has one.
    pub timer: Option<Entry>,
    /// When the arming that is kept behind the timer is due, in ms since 1970.
    pub kept_behind_ms: Option<u64>,
    /// The key as it is expected to expire, of an attached topic.
    pub enrolled: Option<Entry>,
    /// Its dead letters, the newest first: up to ten.
    pub letters: Vec<Entry>,
    /// How earlier timers of the key have ended, the newest first: up to ten, where the topic keeps a journal.
    pub ended: Vec<JournalEntry>,
    /// Whether the topic keeps a journal.
    pub journal: bool,
    /// What has happened, and what will, by time.
    pub timeline: Vec<Moment>,
    /// For how long its timer has been undelivered, by its first deadline, in ms.
    pub undelivered_ms: Option<u64>,
    /// What comes next.
    pub next: String,
    /// Why nothing runs now: each reason by itself is enough.
    pub not_now: Vec<String>,
    /// Who would run it.
    pub served_by: Vec<String>,
    /// The server's time, in ms since 1970.
    pub now_ms: u64,
}

/// Something that has happened, or will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Moment {
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// What.
    pub what: String,
}

impl Console {
    /// What is known of a key, in each topic whose pattern matches it. Nothing is written, and the key itself is not read.
    ///
    /// Ended timers leave nothing behind but dead letters, unless their topic keeps a journal.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn why(&self, key: &[u8]) -> Result<Vec<Why>> {
        let (topics, listeners) = (self.topics_of(key).await?, self.listeners().await?);
        let mut all = Vec::with_capacity(topics.len());
        for topic in &topics {
            all.push(topic.why(key, &listeners).await?);
        }
        Ok(all)
    }
}

impl KnownTopic {
    /// What is known of a key, by what these listeners have said.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn why(&self, key: &[u8], listeners: &[ListenerReport]) -> Result<Why> {
        let look = self.look(key).await?;
        let kept_behind_ms = look
            .as_ref()
            .and_then(|look| look.next.clone())
            .and_then(|next| Record::decode_kept(next).ok().map(|record| record.deadline));
        let overview = self.overview().await?;
        let mut why = Why {
            topic: self.name().to_owned(),
            key: Bytes::copy_from_slice(key),
            timer: look.map(|look| self.entry_of(key, look, None)),
            kept_behind_ms,
            enrolled: self.enrolment(key).await?,
            letters: self.letters_of(key, None).await?,
            ended: Vec::new(),
            journal: self.journal_bounds().await?.is_some(),
            timeline: Vec::new(),
            undelivered_ms: None,
            next: String::new(),
            not_now: Vec::new(),
            served_by: Vec::new(),
            now_ms: overview.now_ms,
        };
        if why.journal {
            why.ended = self.journal_of_key(key).await?.0;
        }
        why.letters.truncate(SHOWN);
        why.ended.truncate(SHOWN);
        why.tell_timeline();
        why.tell_who(listeners);
        why.tell_next();
        why.tell_undelivered(listeners);
        why.not_now.extend(overview.paused.map(|reason| format!("the topic is paused: {reason}")));
        why.not_now.extend(overview.closed.map(|closed| format!("the topic is closed: {closed}")));
        Ok(why)
    }
}
