//! Sends the reads of requests, and passes their answers to the module that processes them. A missing permission is logged
//! once, until an answer shows that it was granted.

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

/// Maximum number of reads in flight for keys that expired in a gap. This maximum also holds for keys of replaced servers.
pub(super) const MAX_RECHECKS_IN_FLIGHT: usize = 4;

/// A permission counts as granted after this time without a refusal, as the reads that needed it may have ended.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(60);

impl StreamReader {
    /// Returns whether reads are sent, and their answers used. A read in a gap has no position in the stream, so it is
    /// neither sent nor used. In a mode without events no read has a position, and all are used.
    pub(super) fn can_use_reads(&self) -> bool {
        self.is_trusted() || self.node.stream_snapshot().mode.receives_nothing()
    }

    /// Returns a lower bound of the time at which a read was sent, by the clock of the partition's server. A write to the
    /// partition before that time was made before the read. The only server needs no bound, and returns 0.
    pub(super) fn earliest_sent(&self, partition: usize, sent: SentAt) -> ServerTime {
        if self.peers.is_none() {
            return ServerTime::default();
        }
        self.runtime.partitions[partition].clock.at_least(sent.at)
    }

    pub(super) fn is_reading_anchor_time(&self) -> bool {
        self.count_in_flight(|request| matches!(request, ReaderRequest::Anchor(_))) > 0
    }

    /// Returns the number of reads of one kind that have no answer yet.
    pub(super) fn count_in_flight(&self, is_one: impl Fn(&ReaderRequest) -> bool) -> usize {
        self.reads_in_flight.values().filter(|(request, _)| is_one(request)).count()
    }

    /// Sends the reads of a request. In a gap it drops requests whose reads need positions.
    pub(super) fn submit_request(&mut self, request: ReaderRequest) {
        match request {
            // Checks become due again, and the other requesters repeat their reads.
            ReaderRequest::Check(_) | ReaderRequest::TrackUncovered(_) | ReaderRequest::Track(_)
                if !self.can_use_reads() => {}
            ReaderRequest::CheckReplaced(by, keys) => {
                self.keep_replaced(by, keys);
                self.check_replaced_keys();
            }
            request @ (ReaderRequest::Check(_)
            | ReaderRequest::TrackUncovered(_)
            | ReaderRequest::ReportMoved(_)) => _ = self.send_read(request),
            ReaderRequest::Track(mut read) => {
                let limit = read.capture.keys_in_touch();
                while read.keys.len() > limit {
                    let part = read.split_off_last(limit);
                    self.send_read(ReaderRequest::Track(part));
                }
                read.keys.shrink_to_fit();
                self.send_read(ReaderRequest::Track(read));
            }
            ReaderRequest::Anchor(keys) => {
                if !self.send_read(ReaderRequest::Anchor(keys)) {
                    self.pending.close_gap(false);
                }
            }
            ReaderRequest::BeginGap => self.begin_gap(),
            ReaderRequest::DecideMoved(_) => {
                unreachable!("handle_request processes it, as it waits for writers")
            }
        }
    }

    /// Reads keys of `replaced_keys`, with few reads in flight. If a read fails, its keys are kept.
    pub(super) fn check_replaced_keys(&mut self) {
        if !self.is_trusted() {
            return;
        }
        while self.count_in_flight(|request| matches!(request, ReaderRequest::CheckReplaced(..)))
            < MAX_RECHECKS_IN_FLIGHT
        {
            let Some((by, keys)) = self.replaced_keys.take_up_to(CopySpec::default().keys_in_touch()) else {
                break;
            };
            if !self.send_read(ReaderRequest::CheckReplaced(by, keys.clone())) {
                return self.keep_replaced(by, keys);
            }
        }
    }

    /// Forgets the reads in flight, which may get no answer. Their requesters repeat them.
    pub(super) fn forget_reads(&mut self) {
        for (request, _) in mem::take(&mut self.reads_in_flight).into_values() {
            if let ReaderRequest::CheckReplaced(by, keys) = request {
                self.keep_replaced(by, keys);
            }
        }
    }

    /// Sends the read of a request, and returns whether the queue had space for it. The requesters repeat dropped
    /// reads: checks become due again, and a later scan finds keys of scans and events.
    fn send_read(&mut self, request: ReaderRequest) -> bool {
        let all =
            |capture: &CopySpec| KeyReadKind::DeadlinesAndValues { capture: capture.clone(), horizon: None };
        let (keys, kind) = match &request {
            ReaderRequest::Check(DeadlineCheck { keys, capture, horizon, .. }) => {
                let kind =
                    KeyReadKind::DeadlinesAndValues { capture: capture.clone(), horizon: Some(*horizon) };
                (keys.iter().map(|tracked| tracked.key.clone()).collect(), kind)
            }
            ReaderRequest::TrackUncovered(read) => (read.keys.clone(), KeyReadKind::Deadlines),
            ReaderRequest::Track(read) => (read.keys.clone(), all(&read.capture)),
            ReaderRequest::Anchor(keys) | ReaderRequest::CheckReplaced(_, keys) => {
                (keys.clone(), all(&CopySpec::default()))
            }
            // A read of no keys: its answer shows that all events published before it have arrived.
            ReaderRequest::ReportMoved(_) | ReaderRequest::DecideMoved(_) | ReaderRequest::BeginGap => {
                (Vec::new(), KeyReadKind::Deadlines)
            }
        };
        self.last_read_id += 1;
        let id = self.last_read_id;
        let sent = self.key_reads.try_send(KeyRead { id, keys, kind }).is_ok();
        if sent {
            let now = SentAt { event_count: self.stream.event_count, at: Instant::now() };
            self.reads_in_flight.insert(id, (request, now));
        }
        sent
    }

    /// Processes the answer to a read. All events that were published before the read have been processed.
    pub(super) async fn handle_read_reply(&mut self, reply: KeyReadReply) {
        let Some((request, sent)) = self.reads_in_flight.remove(&reply.id) else { return };
        if let ReaderRequest::Anchor(keys) = request {
            if let Some((time, _)) = &reply.answer {
                self.stream.set_anchor_time(*time);
            }
            self.on_gap_keys_read(keys, reply.answer, sent).await;
            return self.decide_unproven().await;
        }
        self.record_refusal(&request, &reply, sent.at);
        let request = match request {
            ReaderRequest::ReportMoved(moved) => {
                return self.answer_as_former_owner(moved, reply.answer.is_some());
            }
            ReaderRequest::CheckReplaced(by, keys) if reply.answer.is_none() || !self.is_trusted() => {
                return self.keep_replaced(by, keys);
            }
            request => request,
        };
        let Some(answer) = reply.answer else { return };
        // No call fails when a slot moves in which no partition is, so the slot map may be old.
        if answer.1.iter().any(|found| found.life == KeyDeadline::Elsewhere) {
            self.runtime.client.store.topology().mark_map_stale();
        }
        // If a gap began during the read, only other listeners may have received the events of these keys.
        if !self.can_use_reads() {
            return;
        }
        match request {
            ReaderRequest::Check(check) => self.on_keys_checked(check, answer, sent).await,
            ReaderRequest::TrackUncovered(read) => self.on_deadlines_read(read, answer, sent).await,
            ReaderRequest::Track(read) => self.on_keys_read(read, answer, sent).await,
            ReaderRequest::CheckReplaced(by, keys) => {
                self.record_replaced(by, keys, answer, sent).await;
                self.check_replaced_keys();
            }
            ReaderRequest::Anchor(_)
            | ReaderRequest::BeginGap
            | ReaderRequest::ReportMoved(_)
            | ReaderRequest::DecideMoved(_) => {}
        }
    }

    /// Logs and counts a refused read. The answer to a read that was not refused ends the refusals that it disproves.
    fn record_refusal(&self, request: &ReaderRequest, reply: &KeyReadReply, sent: Instant) {
        let (partition, keys): (_, Vec<&Bytes>) = match request {
            ReaderRequest::Check(DeadlineCheck { partition, keys, .. }) => {
                (*partition, keys.iter().map(|one| &one.key).collect())
            }
            ReaderRequest::TrackUncovered(read) | ReaderRequest::Track(read) => {
                (read.partition, read.keys.iter().collect())
            }
            _ => return,
        };
        let (topic, Some(key)) = (self.topic(partition), keys.first()) else { return };
        let by = self.stream.node();
        if let Some((_, found)) = &reply.answer {
            let is_script = !matches!(request, ReaderRequest::TrackUncovered(_));
            topic.refusals.end_reads(by, sent, |read| {
                let shown = || {
                    proves_permission(&read.rule, is_script, found)
                        || read.rule.starts_with('~') && keys.contains(&&read.key)
                };
                read.by == by && shown() || read.last.elapsed() >= REFUSAL_LIFETIME
            });
        }
        let Some(error) = &reply.refused else { return };
        topic.attached.refused_reads.add(keys.len());
        let rule = missing_rule(error, topic.config.pattern.literal_prefix());
        let read = RefusedRead { by, rule: rule.clone(), key: Bytes::clone(key), last: sent };
        let key = Escaped(key);
        if topic.refusals.begin_read(read, &format!("{key}: {error}; the rule is {rule}")) {
            warn!(topic = %topic.config.name, %key, %rule, %error, "attached keys cannot be read: the user lacks a permission");
        }
    }
}

/// Returns the ACL rule that the user lacks. All servers name a command as in "… to run the 'get' command".
fn missing_rule(error: &str, prefix: &str) -> String {
    let command = error.split_once(" run the '").and_then(|(_, rest)| rest.split_once('\''));
    command.map_or_else(|| format!("~{prefix}*"), |(name, _)| format!("+{}", name.to_ascii_lowercase()))
}

/// Returns whether read_keys.lua has run the command of this rule. The kinds of copies in its answer show which
/// commands it has run.
fn proves_permission(rule: &str, is_script: bool, found: &[KeySnapshot]) -> bool {
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
            assert_eq!(missing_rule(&format!("reading keys: {error}; compare"), "a:"), rule, "{error}");
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
            assert!(
                proves_permission(rule, true, &found(enough)) && !proves_permission(rule, true, &found(not)),
                "{rule}"
            );
        }
        assert!(
            proves_permission("+pexpiretime", false, &found(b""))
                && !proves_permission("+evalsha", false, &found(b""))
        );
        assert!(
            !proves_permission("+llen", true, &found(b"\x03a"))
                && !proves_permission("~a:*", true, &found(b"\x02a"))
        );
    }
}
