//! What is known of a key, in words: what has happened, what comes next, who would run it, and why nothing runs now.

use crate::alarms::{NAMED, words_of};
use crate::status::destinations;
use crate::wire::ListenerReport;
use crate::words::brief;
use crate::{Ending, Entry, EntryState, counted};

use super::{Moment, Why};

impl Why {
    pub(super) fn tell_timeline(&mut self) {
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

    pub(super) fn tell_who(&mut self, listeners: &[ListenerReport]) {
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

    pub(super) fn tell_next(&mut self) {
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
    pub(super) fn tell_undelivered(&mut self, listeners: &[ListenerReport]) {
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
