//! Why a key's timer has run, will run, or does not.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::console::entry::{read, read_letter, read_watch};
use crate::console::{
    Console, Ending, Entry, EntryState, JournalEntry, KnownTopic, counted, show_span, text,
};
use crate::error::Result;
use crate::wire::{ListenerReport, Look, PageMember, Record};

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
    /// A key's timer, with up to so many bytes of its payload.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn timer(&self, key: &[u8], payload: Option<usize>) -> Result<Option<Entry>> {
        Ok(self.look(key).await?.map(|look| self.entry_of(key, look, payload)))
    }

    /// The dead letters of a key, the newest first. All letters of its partition are gone through by name, at most 1,000
    /// in a step.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    #[allow(clippy::cast_precision_loss)] // below 2^43
    pub async fn letters_of(&self, key: &[u8], payload: Option<usize>) -> Result<Vec<Entry>> {
        let at = self.partition_of(key);
        let (store, keep) = (self.console.store(), payload.unwrap_or(0));
        let found = self.console.schedule.persist(|_| store.letters_of_key(at, key)).await?;
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
        why.not_now.extend(overview.paused.map(|reason| format!("the topic is paused: {reason}")));
        why.not_now.extend(overview.closed.map(|closed| format!("the topic is closed: {closed}")));
        Ok(why)
    }

    async fn look(&self, key: &[u8]) -> Result<Option<Look>> {
        let (store, at) = (self.console.store(), self.partition_of(key));
        self.console
            .schedule
            .persist(|_| store.look_if_made(at, key))
            .await
            .map_err(|error| error.at_key(key))
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
        let found = self.console.schedule.persist(|_| store.watch_of_key(at, key)).await?;
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

impl Why {
    fn tell_timeline(&mut self) {
        let mut all = Vec::new();
        let mut tell = |at_ms, what| all.push(Moment { at_ms, what });
        // Deaths are told by their letters.
        for ended in self.ended.iter().filter(|ended| !matches!(ended.outcome, Ending::Dead(_))) {
            tell(ended.ended_ms, format!("ended: {}, at attempt {}", ended.outcome.as_str(), ended.attempt));
        }
        for letter in self.letters.iter().rev() {
            letter.failures.iter().for_each(|failed| tell(crate::time::unix_ms(failed.at), says(failed)));
            let reason = letter.reason.map_or("unknown", |reason| reason.as_str());
            let attempts = counted(letter.attempt.into(), "attempt");
            tell(letter.at_ms, format!("died: {reason}, after {attempts}"));
        }
        if let Some(timer) = &self.timer {
            timer.deadline_ms.into_iter().for_each(|at| tell(at, "first deadline".to_owned()));
            timer.failures.iter().for_each(|failed| tell(crate::time::unix_ms(failed.at), says(failed)));
            let (attempt, at) = (timer.attempt, timer.at_ms);
            match timer.state {
                EntryState::Running => {
                    tell(at, format!("attempt {attempt} runs; its lease ends, unless renewed"));
                }
                _ if at == 0 => {}
                _ if timer.was_left => {
                    tell(at, format!("the lease of attempt {attempt} ended, and nobody has settled it"));
                }
                _ if timer.deadline_ms == Some(at) => {}
                _ => tell(at, format!("attempt {attempt} is due")),
            }
        }
        self.kept_behind_ms
            .into_iter()
            .for_each(|at| tell(at, "the arming kept behind it is due".to_owned()));
        if let Some(key) = &self.enrolled {
            key.deadline_ms.into_iter().for_each(|at| tell(at, "the key expires".to_owned()));
        }
        all.sort_by_key(|moment| moment.at_ms);
        self.timeline = all;
    }

    fn tell_who(&mut self, listeners: &[ListenerReport]) {
        let serving: Vec<_> = listeners
            .iter()
            .filter_map(|one| one.topics.get(&self.topic).map(|topic| (one, topic)))
            .collect();
        for (listener, topic) in &serving {
            let (host, pid, running) = (&listener.host, listener.pid, topic.running);
            let limit = counted(topic.limit as u64, "attempt");
            self.served_by.push(format!("{host} (process {pid}), {running} of {limit} running"));
        }
        if serving.is_empty() {
            self.not_now.push("no listener serves the topic".to_owned());
        } else if serving.iter().all(|(listener, topic)| {
            topic.limit > 0 && topic.running >= topic.limit
                || listener.limit > 0 && listener.running >= listener.limit
        }) {
            self.not_now.push("all listeners run as many attempts as they may".to_owned());
        }
    }

    fn tell_next(&mut self) {
        let now = self.now_ms;
        let span = |ms: u64| show_span(Duration::from_millis(ms));
        self.next = match (&self.timer, &self.enrolled, self.letters.first()) {
            (Some(timer), ..) if timer.at_ms == 0 => {
                self.not_now
                    .push("it has no place in the index: the slow repair of a listener finds it".to_owned());
                "it waits to be repaired".to_owned()
            }
            (Some(timer), ..) if timer.state == EntryState::Running => {
                self.not_now.push(format!("attempt {} is running", timer.attempt));
                format!(
                    "attempt {} ends; else another listener takes it in {}",
                    timer.attempt,
                    span(timer.at_ms.saturating_sub(now))
                )
            }
            (Some(timer), ..) if timer.at_ms > now => {
                self.not_now.push("it is not due yet".to_owned());
                format!("attempt {} in {}", timer.attempt, span(timer.at_ms - now))
            }
            (Some(timer), ..) if timer.state == EntryState::Quarantined => {
                let (attempt, lost) = (timer.attempt, counted(timer.lost_leases.into(), "lease"));
                format!("attempt {attempt}, in a small group or alone: it has lost {lost}")
            }
            (Some(timer), ..) => {
                let again = if timer.was_left { " again" } else { "" };
                format!(
                    "attempt {}{again}, which has been due for {}",
                    timer.attempt,
                    span(now - timer.at_ms)
                )
            }
            (None, Some(key), _) => match key.deadline_ms.unwrap_or_default() {
                at if at > now => {
                    self.not_now.push("the key has not expired".to_owned());
                    format!("the key expires in {}, unless it is written or deleted", span(at - now))
                }
                _ => "the key is looked at".to_owned(),
            },
            (None, None, Some(letter)) => {
                self.not_now.push("it is a dead letter".to_owned());
                format!(
                    "nothing, unless it is replayed; it died {} ago",
                    span(now.saturating_sub(letter.at_ms))
                )
            }
            (None, None, None) => {
                self.not_now.push("nothing is armed under this key".to_owned());
                let known = match self.journal {
                    true if self.ended.is_empty() => "it was never armed, or that is long past",
                    true => "it has ended",
                    false => {
                        "it was never armed, was withdrawn, or has ended; the topic keeps no journal of what has ended"
                    }
                };
                format!("nothing: {known}")
            }
        };
    }
}

fn says(failed: &crate::wire::FailedAttempt) -> String {
    format!("attempt {} failed: {}: {}", failed.attempt, failed.kind, failed.error)
}
