//! What the reader is asked for, and has touched for that: what may be asked now, and whose answer it is. A right to read
//! that is missing is said once, until an answer shows that it is there.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::reader::StreamReader;
use crate::attached::request::{Look, Request, Sent};
use crate::escape::Escaped;
use crate::events::{Question, Touch, Touched};
use crate::log::warn;
use crate::policy::Capture;
use crate::runtime::RefusedRead;
use crate::time::ServerTime;
use crate::wire::{Found, Life};

/// Touches of keys that were heard in a gap, or announced by a server that was replaced, on their way at a time.
pub(super) const AT_ONCE: usize = 4;

/// Where no answer shows that a right is there, as no such key is read any more: after so long without a refusal it is.
const UNREFUSED: Duration = Duration::from_secs(60);

impl StreamReader {
    /// Whether what is read now may be used. In a gap a reading has no position in the stream, and is neither asked for
    /// nor used. In a mode without events no reading has one, and all are used.
    pub(super) fn has_positions(&self) -> bool {
        self.is_trusted() || self.node.known().mode.hears_nothing()
    }

    /// When a touch was sent that is answered now, by the clock of a partition, at the least: nothing that was written there
    /// before that is later than what was read.
    pub(super) fn asked_at(&self, partition: usize, sent: Sent) -> ServerTime {
        if self.peers.is_none() {
            return ServerTime::default();
        }
        self.runtime.partitions[partition].clock.at_least(sent.at)
    }

    pub(super) fn asks_for_the_time(&self) -> bool {
        self.on_their_way(|request| matches!(request, Request::Anchor(_))) > 0
    }

    /// How many touches of a kind are not answered yet.
    pub(super) fn on_their_way(&self, is_one: impl Fn(&Request) -> bool) -> usize {
        self.pending.values().filter(|(request, _)| is_one(request)).count()
    }

    /// Somebody asks.
    pub(super) fn asked(&mut self, request: Request) {
        match request {
            // Looks come back by themselves; who reads, reads again.
            Request::Look(_) | Request::Glance(_) | Request::Read(_) if !self.has_positions() => {}
            Request::Replaced(by, keys) => {
                self.keep_replaced(by, keys);
                self.look_at_replaced();
            }
            request @ (Request::Look(_) | Request::Glance(_) | Request::Recall(_)) => _ = self.send(request),
            Request::Read(mut read) => {
                let most = read.capture.keys_in_touch();
                while read.keys.len() > most {
                    let part = read.split_off(most);
                    self.send(Request::Read(part));
                }
                read.keys.shrink_to_fit();
                self.send(Request::Read(read));
            }
            Request::Anchor(keys) => {
                if !self.send(Request::Anchor(keys)) {
                    self.held.tear(false);
                }
            }
            Request::Late => self.lost(),
            Request::Judge(_) => unreachable!("that waits for writers"),
        }
    }

    /// Has keys read that others have announced which were replaced. They are kept until that is answered.
    pub(super) fn look_at_replaced(&mut self) {
        if !self.is_trusted() {
            return;
        }
        while self.on_their_way(|request| matches!(request, Request::Replaced(..))) < AT_ONCE {
            let Some((by, keys)) = self.replaced.take_some(Capture::default().keys_in_touch()) else { break };
            if !self.send(Request::Replaced(by, keys.clone())) {
                return self.keep_replaced(by, keys);
            }
        }
    }

    /// What was asked will not be answered: who has asked asks again.
    pub(super) fn forget_touches(&mut self) {
        for (request, _) in mem::take(&mut self.pending).into_values() {
            if let Request::Replaced(by, keys) = request {
                self.keep_replaced(by, keys);
            }
        }
    }

    /// Whether the touch was sent. What is not is asked for again: looks come back by themselves, scans
    /// and events are followed by scans.
    fn send(&mut self, request: Request) -> bool {
        let all = |capture: &Capture| Question::Read { capture: capture.clone(), horizon: None };
        let (keys, question) = match &request {
            Request::Look(Look { watches, capture, horizon, .. }) => {
                let question = Question::Read { capture: capture.clone(), horizon: Some(*horizon) };
                (watches.iter().map(|watch| watch.key.clone()).collect(), question)
            }
            Request::Glance(read) => (read.keys.clone(), Question::Glance),
            Request::Read(read) => (read.keys.clone(), all(&read.capture)),
            Request::Anchor(keys) | Request::Replaced(_, keys) => (keys.clone(), all(&Capture::default())),
            // That it is answered says what was published before.
            Request::Recall(_) | Request::Judge(_) | Request::Late => (Vec::new(), Question::Glance),
        };
        self.next_touch += 1;
        let id = self.next_touch;
        let sent = self.touches.try_send(Touch { id, keys, question }).is_ok();
        if sent {
            let now = Sent { heard: self.stream.heard, at: Instant::now() };
            self.pending.insert(id, (request, now));
        }
        sent
    }

    /// A touch was answered. Everything that was published before it has been read.
    pub(super) async fn touched(&mut self, touched: Touched) {
        let Some((request, sent)) = self.pending.remove(&touched.id) else { return };
        if let Request::Anchor(keys) = request {
            if let Some((time, _)) = &touched.answer {
                self.stream.anchored_at(*time);
            }
            self.note_unsure(keys, touched.answer, sent).await;
            return self.judge_unproven().await;
        }
        self.note_refusal(&request, &touched, sent.at);
        let request = match request {
            Request::Recall(moved) => return self.recalled(moved, touched.answer.is_some()),
            Request::Replaced(by, keys) if touched.answer.is_none() || !self.is_trusted() => {
                return self.keep_replaced(by, keys);
            }
            request => request,
        };
        let Some(answer) = touched.answer else { return };
        // A slot where no partition lies may have moved unnoticed.
        if answer.1.iter().any(|found| found.life == Life::Elsewhere) {
            self.runtime.client.store.topology().suspect();
        }
        // The gap began while this was on its way: others may have heard what has become of the keys.
        if !self.has_positions() {
            return;
        }
        match request {
            Request::Look(look) => self.look(look, answer, sent).await,
            Request::Glance(read) => self.glanced(read, answer, sent).await,
            Request::Read(read) => self.enrol(read, answer, sent).await,
            Request::Replaced(by, keys) => {
                self.note_replaced(by, keys, answer, sent).await;
                self.look_at_replaced();
            }
            Request::Anchor(_) | Request::Late | Request::Recall(_) | Request::Judge(_) => {}
        }
    }

    /// Logs and counts a read that the server refuses, and ends the refusals that its answer disproves.
    fn note_refusal(&self, request: &Request, touched: &Touched, sent: Instant) {
        let (partition, keys): (_, Vec<&Bytes>) = match request {
            Request::Look(Look { partition, watches, .. }) => {
                (*partition, watches.iter().map(|one| &one.key).collect())
            }
            Request::Glance(read) | Request::Read(read) => (read.partition, read.keys.iter().collect()),
            _ => return,
        };
        let (topic, Some(key)) = (self.topic(partition), keys.first()) else { return };
        let by = self.stream.node();
        if let Some((_, found)) = &touched.answer {
            let is_script = !matches!(request, Request::Glance(_));
            topic.refusals.end_reads(by, sent, |read| {
                let shown = || {
                    shows(&read.rule, is_script, found)
                        || read.rule.starts_with('~') && keys.contains(&&read.key)
                };
                read.by == by && shown() || read.last.elapsed() >= UNREFUSED
            });
        }
        let Some(error) = &touched.refused else { return };
        topic.attached.refused_reads.add(keys.len());
        let rule = rule_of(error, topic.config.pattern.literal_prefix());
        let read = RefusedRead { by, rule: rule.clone(), key: Bytes::clone(key), last: sent };
        let key = Escaped(key);
        if topic.refusals.begin_read(read, &format!("{key}: {error}; the rule is {rule}")) {
            warn!(topic = %topic.config.name, %key, %rule, %error, "attached keys cannot be read: a right is missing");
        }
    }
}

/// The rule that a user lacks. All servers name a command alike: "… to run the 'get' command".
fn rule_of(error: &str, prefix: &str) -> String {
    let command = error.split_once(" run the '").and_then(|(_, rest)| rest.split_once('\''));
    command.map_or_else(|| format!("~{prefix}*"), |(name, _)| format!("+{}", name.to_ascii_lowercase()))
}

/// Returns whether touch.lua has run the command of this rule. The kinds of copies in its answer show which it has run.
fn shows(rule: &str, is_script: bool, found: &[Found]) -> bool {
    let copied = |kind: u8| found.iter().any(|one| one.copy.first() == Some(&kind));
    match rule {
        "+pexpiretime" => true,
        "+time" | "+evalsha" | "+eval" => is_script,
        "+type" => found.iter().any(|one| !one.copy.is_empty()),
        "+strlen" | "+get" => copied(2),
        "+dump" => copied(3),
        "+hlen" | "+hkeys" | "+hstrlen" | "+hmget" => copied(5),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_refuses_names_the_rule_that_is_missing() {
        for (said, rule) in [
            ("the user may not run the 'strlen' command on them", "+strlen"),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'get' command script: on",
                "+get",
            ),
            ("NOPERM User u has no permissions to run the 'client|id' command", "+client|id"),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", "~a:*"),
            ("NOPERM No permissions to access a key", "~a:*"),
        ] {
            assert_eq!(rule_of(&format!("reading keys: {said}; compare"), "a:"), rule, "{said}");
        }
    }

    #[test]
    fn only_an_answer_for_which_a_command_was_run_shows_that_it_may_be() {
        let found = |copy: &'static [u8]| {
            [Found { stamp: ServerTime(0), life: Life::Until(1), copy: Bytes::from_static(copy) }]
        };
        for (rule, enough, not) in [
            ("+get", &b"\x02a"[..], &b"\x04"[..]),
            ("+hmget", b"\x05", b"\x02a"),
            ("+dump", b"\x03a", b"\x01"),
            ("+type", b"\x04", b""),
        ] {
            assert!(shows(rule, true, &found(enough)) && !shows(rule, true, &found(not)), "{rule}");
        }
        assert!(shows("+pexpiretime", false, &found(b"")) && !shows("+evalsha", false, &found(b"")));
        assert!(!shows("+llen", true, &found(b"\x03a")) && !shows("~a:*", true, &found(b"\x02a")));
    }
}
