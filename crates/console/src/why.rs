//! Why a key's timer has run, will run, or does not: what is known of the key, as fields and in words.

use bytes::Bytes;
use serde::Serialize;

use crate::alarms::{NAMED, words_of};
use crate::error::Result;
use crate::status::destinations;
use crate::wire::{ListenerReport, Record};
use crate::words::brief;
use crate::{Console, Ending, Entry, EntryState, JournalEntry, KnownTopic, counted, text};

/// Letters and ends of a key that are shown.
const SHOWN: usize = 10;

/// What is known of a key in one topic.
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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

impl Why {
    fn tell_timeline(&mut self) {
        let mut all = Vec::new();
        let mut tell = |at_ms, what| all.push(Moment { at_ms, what });
        // Deaths are told by their letters.
        for ended in self.ended.iter().filter(|ended| ended.outcome != Ending::Dead) {
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
            let stalled = if listener.handlers_stalled_ms.is_some() { ", its handlers stalled" } else { "" };
            self.served_by.push(format!("{host} (process {pid}), {running} of {limit} running{stalled}"));
        }
        if serving.is_empty() {
            self.not_now.push("no listener serves the topic".to_owned());
        } else if serving.iter().all(|(listener, _)| listener.handlers_stalled_ms.is_some()) {
            self.not_now.push("the handlers of each listener block all threads of their runtimes".to_owned());
        } else if serving.iter().all(|(listener, topic)| {
            topic.limit > 0 && topic.running >= topic.limit
                || listener.limit > 0 && listener.running >= listener.limit
        }) {
            self.not_now.push("all listeners run as many attempts as they may".to_owned());
        }
    }

    fn tell_next(&mut self) {
        let (next, not_now) = match (&self.timer, &self.enrolled, self.letters.first()) {
            (Some(timer), ..) => self.next_of_timer(timer),
            (None, Some(key), _) => self.next_of_key(key),
            (None, None, Some(letter)) => {
                let ago = brief(self.now_ms.saturating_sub(letter.at_ms));
                (
                    format!("nothing, unless it is replayed; it died {ago} ago"),
                    Some("it is a dead letter".to_owned()),
                )
            }
            (None, None, None) => {
                (format!("nothing: {}", self.what_was()), Some("nothing is armed under this key".to_owned()))
            }
        };
        self.next = next;
        self.not_now.extend(not_now);
    }

    /// What comes next, and why it does not now.
    fn next_of_timer(&self, timer: &Entry) -> (String, Option<String>) {
        let (now, attempt, at) = (self.now_ms, timer.attempt, timer.at_ms);
        match timer.state {
            _ if at == 0 => {
                let lost = "it has no place in the index: the slow repair of a listener finds it";
                ("it waits to be repaired".to_owned(), Some(lost.to_owned()))
            }
            EntryState::Running => {
                let rest = brief(at.saturating_sub(now));
                let next = format!("attempt {attempt} ends; else another listener takes it in {rest}");
                (next, Some(format!("attempt {attempt} is running")))
            }
            _ if at > now => {
                (format!("attempt {attempt} in {}", brief(at - now)), Some("it is not due yet".to_owned()))
            }
            EntryState::Quarantined => {
                let lost = counted(timer.lost_leases.into(), "lease");
                (format!("attempt {attempt}, in a small group or alone: it has lost {lost}"), None)
            }
            _ => {
                let again = if timer.was_left { " again" } else { "" };
                (format!("attempt {attempt}{again}, which has been due for {}", brief(now - at)), None)
            }
        }
    }

    /// For how long it should have run, and whom its topic waits for.
    fn tell_undelivered(&mut self, listeners: &[ListenerReport]) {
        let Some(timer) = &self.timer else { return };
        let since = timer.deadline_ms.and_then(|first| self.now_ms.checked_sub(first)).filter(|ms| *ms > 0);
        let runs_first = timer.state == EntryState::Running && timer.attempt == 1 && timer.snoozes == 0;
        let Some(since) = since.filter(|_| !runs_first) else { return };
        self.undelivered_ms = Some(since);
        let all = destinations(&self.topic, listeners);
        let held_back = all.iter().filter(|one| one.state.holds_back()).take(NAMED);
        self.not_now.extend(held_back.map(|one| format!("its topic is held back by {}", words_of(one))));
    }

    fn next_of_key(&self, key: &Entry) -> (String, Option<String>) {
        match key.deadline_ms.unwrap_or_default() {
            at if at > self.now_ms => {
                let rest = brief(at - self.now_ms);
                let next = format!("the key expires in {rest}, unless it is written or deleted");
                (next, Some("the key has not expired".to_owned()))
            }
            _ => ("the key is looked at".to_owned(), None),
        }
    }

    /// Of a key of which nothing is kept.
    fn what_was(&self) -> &'static str {
        match self.journal {
            true if self.ended.is_empty() => "it was never armed, or that is long past",
            true => "it has ended",
            false => {
                "it was never armed, was withdrawn, or has ended; the topic keeps no journal of what has ended"
            }
        }
    }
}

fn says(failed: &crate::wire::FailedAttempt) -> String {
    format!("attempt {} failed: {}: {}", failed.attempt, failed.kind, failed.error)
}
