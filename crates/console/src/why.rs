//! Explains why a key's timer has run, will run, or does not run.

use bytes::Bytes;
use serde::Serialize;

use crate::alarms::{MAX_NAMED_DESTINATIONS, describe_destination};
use crate::error::Result;
use crate::format::brief;
use crate::status::destinations;
use crate::wire::{ListenerReport, Record};
use crate::{Console, Ending, Entry, EntryState, JournalEntry, TopicHandle, counted, text};

/// How many dead letters and journal entries of a key an explanation shows.
const MAX_SHOWN_ENTRIES: usize = 10;

/// The state, the history and the next step of a key in one topic.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct KeyExplanation {
    /// The topic.
    pub topic: String,
    /// The key.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
    /// The key's timer.
    pub timer: Option<Entry>,
    /// The deadline of the arming that follows the running attempt, in ms since 1970.
    pub next_arming_ms: Option<u64>,
    /// The tracked key, if the topic is attached.
    pub tracked_key: Option<Entry>,
    /// Up to ten dead letters of the key, the newest first.
    pub dead_letters: Vec<Entry>,
    /// Up to ten journal entries of the key's earlier timers, the newest first.
    pub ended: Vec<JournalEntry>,
    /// True if the topic keeps a journal.
    pub journal: bool,
    /// Past and future events of the key, sorted by time.
    pub timeline: Vec<TimelineEvent>,
    /// The time since the first deadline in ms, if the timer is undelivered.
    pub undelivered_ms: Option<u64>,
    /// The next event, as text.
    pub next: String,
    /// The reasons why no attempt starts now. Each reason alone is sufficient.
    pub blocked_by: Vec<String>,
    /// The listeners that serve the topic, as text.
    pub served_by: Vec<String>,
    /// The server's time, in ms since 1970.
    pub now_ms: u64,
}

/// A past or future event of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TimelineEvent {
    /// The time in ms since 1970.
    pub at_ms: u64,
    /// The event, as text.
    pub event: String,
}

impl Console {
    /// Explains a key in each topic whose pattern matches it. Writes nothing, and does not read the key itself.
    ///
    /// Timers that have ended appear only as dead letters, unless their topic keeps a journal.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn explain_key(&self, key: &[u8]) -> Result<Vec<KeyExplanation>> {
        let (topics, listeners) = (self.topics_of(key).await?, self.listeners().await?);
        let mut all = Vec::with_capacity(topics.len());
        for topic in &topics {
            all.push(topic.explain_key(key, &listeners).await?);
        }
        Ok(all)
    }
}

impl TopicHandle {
    /// Explains a key of this topic, given the reports of the listeners.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn explain_key(&self, key: &[u8], listeners: &[ListenerReport]) -> Result<KeyExplanation> {
        let look = self.look(key).await?;
        let next_arming_ms = look
            .as_ref()
            .and_then(|look| look.next.clone())
            .and_then(|next| Record::decode_kept(next).ok().map(|record| record.deadline));
        let overview = self.overview().await?;
        let mut why = KeyExplanation {
            topic: self.name().to_owned(),
            key: Bytes::copy_from_slice(key),
            timer: look.map(|look| self.entry_of(key, look, None)),
            next_arming_ms,
            tracked_key: self.tracked_key(key).await?,
            dead_letters: self.dead_letters_of_key(key, None).await?,
            ended: Vec::new(),
            journal: self.journal_bounds().await?.is_some(),
            timeline: Vec::new(),
            undelivered_ms: None,
            next: String::new(),
            blocked_by: Vec::new(),
            served_by: Vec::new(),
            now_ms: overview.now_ms,
        };
        if why.journal {
            why.ended = self.journal_of_key(key).await?.0;
        }
        why.dead_letters.truncate(MAX_SHOWN_ENTRIES);
        why.ended.truncate(MAX_SHOWN_ENTRIES);
        why.build_timeline();
        why.add_listeners(listeners);
        why.add_next();
        why.add_undelivered(listeners);
        why.blocked_by.extend(overview.paused.map(|reason| format!("the topic is paused: {reason}")));
        why.blocked_by.extend(overview.closed.map(|closed| format!("the topic is closed: {closed}")));
        Ok(why)
    }
}

impl KeyExplanation {
    fn build_timeline(&mut self) {
        let mut all = Vec::new();
        let mut add = |at_ms, event| all.push(TimelineEvent { at_ms, event });
        // The dead letters below describe deaths in more detail than the journal.
        for ended in self.ended.iter().filter(|ended| ended.outcome != Ending::Dead) {
            add(ended.ended_ms, format!("ended: {}, at attempt {}", ended.outcome.as_str(), ended.attempt));
        }
        for letter in self.dead_letters.iter().rev() {
            letter
                .failures
                .iter()
                .for_each(|failed| add(crate::time::unix_ms(failed.at), describe_failure(failed)));
            let reason = letter.reason.map_or("unknown", |reason| reason.as_str());
            let attempts = counted(letter.attempt.into(), "attempt");
            add(letter.at_ms, format!("died: {reason}, after {attempts}"));
        }
        if let Some(timer) = &self.timer {
            timer.deadline_ms.into_iter().for_each(|at| add(at, "first deadline".to_owned()));
            timer
                .failures
                .iter()
                .for_each(|failed| add(crate::time::unix_ms(failed.at), describe_failure(failed)));
            let (attempt, at) = (timer.attempt, timer.at_ms);
            match timer.state {
                EntryState::Running => {
                    add(at, format!("attempt {attempt} runs; its lease ends, unless renewed"));
                }
                _ if at == 0 => {}
                _ if timer.was_left => {
                    add(at, format!("the lease of attempt {attempt} ended without a result"));
                }
                _ if timer.deadline_ms == Some(at) => {}
                _ => add(at, format!("attempt {attempt} is due")),
            }
        }
        self.next_arming_ms.into_iter().for_each(|at| add(at, "the next arming is due".to_owned()));
        if let Some(key) = &self.tracked_key {
            key.deadline_ms.into_iter().for_each(|at| add(at, "the key expires".to_owned()));
        }
        all.sort_by_key(|moment| moment.at_ms);
        self.timeline = all;
    }

    fn add_listeners(&mut self, listeners: &[ListenerReport]) {
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
            self.blocked_by.push("no listener serves the topic".to_owned());
        } else if serving.iter().all(|(listener, _)| listener.handlers_stalled_ms.is_some()) {
            self.blocked_by
                .push("the handlers of each listener block all threads of their runtimes".to_owned());
        } else if serving.iter().all(|(listener, topic)| {
            topic.limit > 0 && topic.running >= topic.limit
                || listener.limit > 0 && listener.running >= listener.limit
        }) {
            self.blocked_by.push("all concurrency slots of the listeners are in use".to_owned());
        }
    }

    fn add_next(&mut self) {
        let (next, not_now) = match (&self.timer, &self.tracked_key, self.dead_letters.first()) {
            (Some(timer), ..) => self.next_of_timer(timer),
            (None, Some(key), _) => self.next_of_key(key),
            (None, None, Some(letter)) => {
                let ago = brief(self.now_ms.saturating_sub(letter.at_ms));
                (
                    format!("nothing, unless it is replayed; it died {ago} ago"),
                    Some("it is a dead letter".to_owned()),
                )
            }
            (None, None, None) => (
                format!("nothing: {}", self.explain_absence()),
                Some("nothing is armed under this key".to_owned()),
            ),
        };
        self.next = next;
        self.blocked_by.extend(not_now);
    }

    /// Returns the next event, and the reason why it does not happen now.
    fn next_of_timer(&self, timer: &Entry) -> (String, Option<String>) {
        let (now, attempt, at) = (self.now_ms, timer.attempt, timer.at_ms);
        match timer.state {
            _ if at == 0 => {
                let lost = "the timer is missing from the index: the slow repair of a listener restores it";
                ("a listener repairs the index".to_owned(), Some(lost.to_owned()))
            }
            EntryState::Running => {
                let rest = brief(at.saturating_sub(now));
                let next = format!("attempt {attempt} ends, or another listener claims the timer in {rest}");
                (next, Some(format!("attempt {attempt} is running")))
            }
            _ if at > now => {
                (format!("attempt {attempt} in {}", brief(at - now)), Some("it is not due yet".to_owned()))
            }
            EntryState::Quarantined => {
                let lost = counted(timer.lost_leases.into(), "lease");
                (format!("attempt {attempt}, in a small group or alone: the timer has lost {lost}"), None)
            }
            _ => {
                let again = if timer.was_left { " again" } else { "" };
                (format!("attempt {attempt}{again}, due for {}", brief(now - at)), None)
            }
        }
    }

    /// Adds how long the timer has been undelivered, and the destinations that hold its topic back.
    fn add_undelivered(&mut self, listeners: &[ListenerReport]) {
        let Some(timer) = &self.timer else { return };
        let since = timer.deadline_ms.and_then(|first| self.now_ms.checked_sub(first)).filter(|ms| *ms > 0);
        let runs_first = timer.state == EntryState::Running && timer.attempt == 1 && timer.snoozes == 0;
        let Some(since) = since.filter(|_| !runs_first) else { return };
        self.undelivered_ms = Some(since);
        let all = destinations(&self.topic, listeners);
        let held_back = all.iter().filter(|one| one.state.holds_back()).take(MAX_NAMED_DESTINATIONS);
        self.blocked_by
            .extend(held_back.map(|one| format!("its topic is held back by {}", describe_destination(one))));
    }

    fn next_of_key(&self, key: &Entry) -> (String, Option<String>) {
        match key.deadline_ms.unwrap_or_default() {
            at if at > self.now_ms => {
                let rest = brief(at - self.now_ms);
                let next = format!("the key expires in {rest}, unless it is written or deleted");
                (next, Some("the key has not expired".to_owned()))
            }
            _ => ("a listener checks the key".to_owned(), None),
        }
    }

    /// Explains why the key has neither timer nor dead letter.
    fn explain_absence(&self) -> &'static str {
        match self.journal {
            true if self.ended.is_empty() => "it was never armed, or its entry has left the journal",
            true => "it has ended",
            false => "it was never armed, was cancelled, or has ended; the topic keeps no journal",
        }
    }
}

fn describe_failure(failed: &crate::wire::FailedAttempt) -> String {
    format!("attempt {} failed: {}: {}", failed.attempt, failed.kind, failed.error)
}
