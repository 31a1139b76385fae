//! Sends the reads of requests, and processes their answers. A missing permission is logged once, until an answer shows
//! that it was granted.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::reader::StreamReader;
use crate::attached::request::{DeadlineCheck, ReaderRequest, SentAt};
use crate::escape::Escaped;
use crate::events::{KeyRead, KeyReadKind, KeyReadReply};
use crate::log::warn;
use crate::policy::CopySpec;
use crate::runtime::RefusedRead;
use crate::time::ServerTime;
use crate::wire::{KeyDeadline, KeySnapshot};

/// Maximum number of reads in flight for keys that expired in a gap, and again for keys of replaced servers.
pub(super) const MAX_RECHECKS_IN_FLIGHT: usize = 4;

/// A permission counts as granted after this time without a refusal, as reads that would show it may have ended.
const UNREFUSED: Duration = Duration::from_secs(60);

impl StreamReader {
    /// Returns whether reads are sent and used now. A read in a gap has no position in the stream, so it is neither
    /// sent nor used. In a mode without events no read has a position, and all are used.
    pub(super) fn has_positions(&self) -> bool {
        self.is_trusted() || self.node.known().mode.receives_nothing()
    }

    /// Returns a lower bound of the time at which a read was sent, by the clock of a partition. Writes to the partition
    /// before that time are not later than the read. The only server needs no bound, and returns 0.
    pub(super) fn asked_at(&self, partition: usize, sent: SentAt) -> ServerTime {
        if self.peers.is_none() {
            return ServerTime::default();
        }
        self.runtime.partitions[partition].clock.at_least(sent.at)
    }

    pub(super) fn asks_for_the_time(&self) -> bool {
        self.on_their_way(|request| matches!(request, ReaderRequest::Anchor(_))) > 0
    }

    /// Returns the number of reads of one kind that have no answer yet.
    pub(super) fn on_their_way(&self, is_one: impl Fn(&ReaderRequest) -> bool) -> usize {
        self.pending.values().filter(|(request, _)| is_one(request)).count()
    }

    /// Sends the reads of a request. In a gap it drops requests that need positions.
    pub(super) fn submit_request(&mut self, request: ReaderRequest) {
        match request {
            // Checks become due again, and the other requesters repeat their reads.
            ReaderRequest::Look(_) | ReaderRequest::Glance(_) | ReaderRequest::Read(_)
                if !self.has_positions() => {}
            ReaderRequest::Replaced(by, keys) => {
                self.keep_replaced(by, keys);
                self.look_at_replaced();
            }
            request @ (ReaderRequest::Look(_) | ReaderRequest::Glance(_) | ReaderRequest::Recall(_)) => {
                _ = self.send(request)
            }
            ReaderRequest::Read(mut read) => {
                let most = read.capture.keys_in_touch();
                while read.keys.len() > most {
                    let part = read.split_off(most);
                    self.send(ReaderRequest::Read(part));
                }
                read.keys.shrink_to_fit();
                self.send(ReaderRequest::Read(read));
            }
            ReaderRequest::Anchor(keys) => {
                if !self.send(ReaderRequest::Anchor(keys)) {
                    self.held.close_gap(false);
                }
            }
            ReaderRequest::Late => self.lost(),
            ReaderRequest::Judge(_) => unreachable!("handle_request processes it, as it waits for writers"),
        }
    }

    /// Reads keys that replaced servers announced. They are kept until they are checked.
    pub(super) fn look_at_replaced(&mut self) {
        if !self.is_trusted() {
            return;
        }
        while self.on_their_way(|request| matches!(request, ReaderRequest::Replaced(..)))
            < MAX_RECHECKS_IN_FLIGHT
        {
            let Some((by, keys)) = self.replaced.take_some(CopySpec::default().keys_in_touch()) else {
                break;
            };
            if !self.send(ReaderRequest::Replaced(by, keys.clone())) {
                return self.keep_replaced(by, keys);
            }
        }
    }

    /// Forgets the reads in flight, which will get no answer. The requesters repeat them.
    pub(super) fn forget_touches(&mut self) {
        for (request, _) in mem::take(&mut self.pending).into_values() {
            if let ReaderRequest::Replaced(by, keys) = request {
                self.keep_replaced(by, keys);
            }
        }
    }

    /// Sends the read of a request, and returns whether the queue had space for it. The requesters repeat dropped
    /// reads: checks become due again, and a later scan finds keys of scans and events.
    fn send(&mut self, request: ReaderRequest) -> bool {
        let all = |capture: &CopySpec| KeyReadKind::Read { capture: capture.clone(), horizon: None };
        let (keys, question) = match &request {
            ReaderRequest::Look(DeadlineCheck { watches, capture, horizon, .. }) => {
                let question = KeyReadKind::Read { capture: capture.clone(), horizon: Some(*horizon) };
                (watches.iter().map(|watch| watch.key.clone()).collect(), question)
            }
            ReaderRequest::Glance(read) => (read.keys.clone(), KeyReadKind::Glance),
            ReaderRequest::Read(read) => (read.keys.clone(), all(&read.capture)),
            ReaderRequest::Anchor(keys) | ReaderRequest::Replaced(_, keys) => {
                (keys.clone(), all(&CopySpec::default()))
            }
            // The answer shows that all events published before it have arrived.
            ReaderRequest::Recall(_) | ReaderRequest::Judge(_) | ReaderRequest::Late => {
                (Vec::new(), KeyReadKind::Glance)
            }
        };
        self.next_touch += 1;
        let id = self.next_touch;
        let sent = self.touches.try_send(KeyRead { id, keys, question }).is_ok();
        if sent {
            let now = SentAt { heard: self.stream.heard, at: Instant::now() };
            self.pending.insert(id, (request, now));
        }
        sent
    }

    /// Processes the answer to a read. All events that were published before it have been processed.
    pub(super) async fn handle_read_reply(&mut self, touched: KeyReadReply) {
        let Some((request, sent)) = self.pending.remove(&touched.id) else { return };
        if let ReaderRequest::Anchor(keys) = request {
            if let Some((time, _)) = &touched.answer {
                self.stream.anchored_at(*time);
            }
            self.record_gap_expiries(keys, touched.answer, sent).await;
            return self.judge_unproven().await;
        }
        self.note_refusal(&request, &touched, sent.at);
        let request = match request {
            ReaderRequest::Recall(moved) => {
                return self.answer_as_former_owner(moved, touched.answer.is_some());
            }
            ReaderRequest::Replaced(by, keys) if touched.answer.is_none() || !self.is_trusted() => {
                return self.keep_replaced(by, keys);
            }
            request => request,
        };
        let Some(answer) = touched.answer else { return };
        // No call fails when a slot moves in which no partition is, so the slot map may be old.
        if answer.1.iter().any(|found| found.life == KeyDeadline::Elsewhere) {
            self.runtime.client.store.topology().mark_map_stale();
        }
        // A gap began during the read, so only other listeners may have received the events of these keys.
        if !self.has_positions() {
            return;
        }
        match request {
            ReaderRequest::Look(look) => self.look(look, answer, sent).await,
            ReaderRequest::Glance(read) => self.glanced(read, answer, sent).await,
            ReaderRequest::Read(read) => self.track_keys(read, answer, sent).await,
            ReaderRequest::Replaced(by, keys) => {
                self.note_replaced(by, keys, answer, sent).await;
                self.look_at_replaced();
            }
            ReaderRequest::Anchor(_)
            | ReaderRequest::Late
            | ReaderRequest::Recall(_)
            | ReaderRequest::Judge(_) => {}
        }
    }

    /// Logs and counts a read that the server refuses, and ends the refusals that its answer disproves.
    fn note_refusal(&self, request: &ReaderRequest, touched: &KeyReadReply, sent: Instant) {
        let (partition, keys): (_, Vec<&Bytes>) = match request {
            ReaderRequest::Look(DeadlineCheck { partition, watches, .. }) => {
                (*partition, watches.iter().map(|one| &one.key).collect())
            }
            ReaderRequest::Glance(read) | ReaderRequest::Read(read) => {
                (read.partition, read.keys.iter().collect())
            }
            _ => return,
        };
        let (topic, Some(key)) = (self.topic(partition), keys.first()) else { return };
        let by = self.stream.node();
        if let Some((_, found)) = &touched.answer {
            let is_script = !matches!(request, ReaderRequest::Glance(_));
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
            warn!(topic = %topic.config.name, %key, %rule, %error, "attached keys cannot be read: the user lacks a permission");
        }
    }
}

/// Returns the ACL rule that the user lacks. All servers name a command as in "… to run the 'get' command".
fn rule_of(error: &str, prefix: &str) -> String {
    let command = error.split_once(" run the '").and_then(|(_, rest)| rest.split_once('\''));
    command.map_or_else(|| format!("~{prefix}*"), |(name, _)| format!("+{}", name.to_ascii_lowercase()))
}

/// Returns whether read_keys.lua has run the command of this rule. The kinds of copies in its answer show which
/// commands it has run.
fn shows(rule: &str, is_script: bool, found: &[KeySnapshot]) -> bool {
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
        for (error, rule) in [
            ("the user may not run the 'strlen' command on them", "+strlen"),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'get' command script: on",
                "+get",
            ),
            ("NOPERM User u has no permissions to run the 'client|id' command", "+client|id"),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", "~a:*"),
            ("NOPERM No permissions to access a key", "~a:*"),
        ] {
            assert_eq!(rule_of(&format!("reading keys: {error}; compare"), "a:"), rule, "{error}");
        }
    }

    #[test]
    fn only_an_answer_for_which_a_command_was_run_shows_that_it_may_be() {
        let found = |copy: &'static [u8]| {
            [KeySnapshot {
                stamp: ServerTime(0),
                life: KeyDeadline::Until(1),
                copy: Bytes::from_static(copy),
            }]
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
