//! Processes the answers to reads: tracks deadlines, and decides on checked keys.
//!
//! A check leads to a verdict ([`decide`]), which needs the state of the key and the evidence of the event stream. A key
//! has *moved* if its deadline was read on another server. Then that server reports its part of the evidence first.

use std::mem;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::decision::{KeyState, StreamEvidence, Verdict, decide};
use crate::attached::reader::{CheckedKey, MAX_DELETED_KEYS, StreamReader};
use crate::attached::request::{
    DeadlineCheck, FormerOwnerReport, MovedKey, MovedKeys, ReadReservation, ReaderRequest, SentAt,
    TrackRequest,
};
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::escape::Escaped;
use crate::events::FoundKeys;
use crate::id::ArmingId;
use crate::log::debug;
use crate::policy::Treatment;
use crate::time::{ServerTime, ms_ceil};
use crate::wire::{CheckAction, CheckResult, DeadlineReading, KeyDeadline, KeySnapshot, NodeId, TrackedKey};

/// A key whose expiry was announced is recovered if it is still tracked this long after its deadline. The record of the
/// expiry was lost with a replaced server, or is late and then finds the recovery.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

impl StreamReader {
    /// Processes the answer to a read of deadlines alone. Nothing is done for a key that is covered: the index has a
    /// deadline that is not later. All others are read again with a position, which this read does not have.
    pub(super) async fn on_deadlines_read(
        &mut self,
        mut read: TrackRequest,
        (stamp, found): FoundKeys,
        sent: SentAt,
    ) {
        let mut lives = found.into_iter().map(|one| one.life);
        read.keys.retain(|key| match lives.next() {
            Some(KeyDeadline::Until(deadline)) if !self.stream.has_event_since(key, sent.event_count) => {
                !self.deadlines.covers(key, deadline, stamp)
            }
            _ => true,
        });
        if !read.keys.is_empty() {
            self.submit_request(ReaderRequest::Track(read));
        } else if let Some(done) = read.done {
            self.write(read.partition, Write::Notify(done), ReadReservation::default()).await;
        }
    }

    /// Processes the answer to a read of deadlines and values: tracks the keys that have a deadline. For changed keys
    /// (`prompted`), it also ends the tracking of those without a deadline, and of deleted ones with the next heartbeat.
    /// Reads a key again if an event of it arrived after the read was sent.
    pub(super) async fn on_keys_read(&mut self, read: TrackRequest, (_, found): FoundKeys, sent: SentAt) {
        let TrackRequest { partition, keys, capture, rereads_left, prompted, done, room } = read;
        let (mut again, mut elsewhere) = (Vec::new(), Vec::new());
        for (key, KeySnapshot { stamp, life, copy }) in keys.into_iter().zip(found) {
            // The read may belong to the expiry cycle before the event, or to the one after it.
            if self.stream.has_event_since(&key, sent.event_count) {
                again.push(key);
                continue;
            }
            match life {
                // The index has this deadline or an earlier one, so a check comes in time.
                KeyDeadline::Until(deadline)
                    if prompted && copy.is_empty() && self.deadlines.covers(&key, deadline, stamp) => {}
                KeyDeadline::Until(deadline) => {
                    self.track_deadline(partition, key, deadline, (stamp, sent), copy, room.clone()).await;
                }
                KeyDeadline::Persistent if prompted => {
                    self.track_deadline(partition, key, 0, (stamp, sent), copy, room.clone()).await;
                }
                KeyDeadline::Elsewhere => elsewhere.push(key),
                KeyDeadline::Gone if prompted && self.deleted.len() < MAX_DELETED_KEYS => {
                    if let Some(at) = self.stream.deleted_at(&key) {
                        let asked = self.earliest_sent(partition, sent);
                        self.deleted.push((
                            partition,
                            DeadlineReading { key, deadline: 0, at, stamp, requested_at: asked, copy },
                        ));
                    }
                }
                KeyDeadline::Persistent | KeyDeadline::Gone => {}
            }
        }
        if let Some(done) = done {
            self.write(partition, Write::Notify(done), ReadReservation::default()).await;
        }
        let read = |keys| TrackRequest {
            rereads_left: rereads_left - 1,
            prompted,
            room: room.clone(),
            ..TrackRequest::of(partition, keys, capture.clone())
        };
        if !again.is_empty() && rereads_left > 0 {
            self.submit_request(ReaderRequest::Track(read(again)));
        }
        if !elsewhere.is_empty() && rereads_left > 0 {
            for (owner, keys) in self.readers.divide_by_reader(elsewhere, |key| key) {
                let _ = owner.try_send(ReaderRequest::Track(read(keys)));
            }
        }
    }

    /// Tracks a deadline that was just read, or ends the tracking with a deadline of 0.
    pub(super) async fn track_deadline(
        &self,
        partition: usize,
        key: Bytes,
        deadline: u64,
        (stamp, sent): (ServerTime, SentAt),
        copy: Bytes,
        room: ReadReservation,
    ) {
        let at = self.stream.position_of(&key);
        // Only a listener that tracks written keys of the topic looks its deadlines up.
        let is_looked_up = self.topic(partition).tracks_written_keys.load(Ordering::Relaxed);
        let pending = match deadline {
            1.. if is_looked_up && at.canary > 0 => self.deadlines.add_pending(&key, deadline, stamp),
            _ => {
                self.deadlines.forget(&key);
                None
            }
        };
        let asked = self.earliest_sent(partition, sent);
        let read = DeadlineReading { key, deadline, at, stamp, requested_at: asked, copy };
        self.write(partition, Write::Track(read, pending), room).await;
    }

    /// Processes the answer to a check, and decides on each key. Keys of other servers are passed on.
    pub(super) async fn on_keys_checked(
        &mut self,
        check: DeadlineCheck,
        (_, found): FoundKeys,
        sent: SentAt,
    ) {
        let DeadlineCheck { partition, keys, capture, horizon, room } = check;
        let (checked_after, mut moved, mut elsewhere) = (self.stream.last_canary, Vec::new(), Vec::new());
        for (tracked, found) in keys.into_iter().zip(found) {
            let Some(state) = key_state_of(found.life, &tracked, found.stamp) else {
                elsewhere.push(tracked);
                continue;
            };
            if self.peers.is_some() && tracked.at.node != self.stream.node() {
                moved.push((tracked, found));
                continue;
            }
            let KeySnapshot { stamp, life, copy } = found;
            let verdict = decide(state, self.stream.evidence_for(&tracked, checked_after));
            let checked = CheckedKey {
                partition,
                tracked,
                stamp,
                checked_after,
                former_report: None,
                room: room.clone(),
            };
            self.apply_verdict(checked, verdict, (life, copy), sent).await;
        }
        self.forward_checks(DeadlineCheck {
            partition,
            keys: elsewhere,
            capture,
            horizon,
            room: room.clone(),
        });
        if !moved.is_empty() {
            self.ask_former_owners(partition, moved, sent, room).await;
        }
    }

    /// Applies the verdict on a key that was just checked. Tracks a new deadline or value, keeps an unproven key until the
    /// next heartbeat, or writes the action of the verdict.
    async fn apply_verdict(
        &mut self,
        checked: CheckedKey,
        verdict: Verdict,
        (life, copy): (KeyDeadline, Bytes),
        sent: SentAt,
    ) {
        // The read may belong to the expiry cycle before an event or after it. In that case the key is checked again.
        let fresh = !self.stream.has_event_since(&checked.tracked.key, sent.event_count);
        let early = checked.stamp.ms() < checked.tracked.deadline;
        match (verdict, life) {
            (Verdict::Unproven, _) => self.unproven.push(checked),
            (Verdict::Extended, KeyDeadline::Until(deadline)) if fresh => {
                self.topic(checked.partition).attached.extended.add(1);
                self.track_deadline(
                    checked.partition,
                    checked.tracked.key,
                    deadline,
                    (checked.stamp, sent),
                    copy,
                    checked.room,
                )
                .await;
            }
            // This check came shortly before the deadline, and has read the value once more.
            (Verdict::NotYet, KeyDeadline::Until(deadline)) if fresh && early && !copy.is_empty() => {
                self.track_deadline(
                    checked.partition,
                    checked.tracked.key,
                    deadline,
                    (checked.stamp, sent),
                    copy,
                    checked.room,
                )
                .await;
            }
            // The expiry of this key is pending. Recording it fires, so this check must not.
            (Verdict::Recovered, _) if self.pending.has_in_last_gap(&checked.tracked.key) => {
                self.fire_pending_without_events(
                    checked.partition,
                    checked.tracked,
                    checked.stamp,
                    checked.room,
                )
                .await;
            }
            (verdict, _) => self.write_action(checked, verdict).await,
        }
    }

    /// Writes the action of a verdict, if it has one.
    async fn write_action(&self, checked: CheckedKey, verdict: Verdict) {
        let CheckedKey { partition, tracked, stamp, former_report, room, .. } = checked;
        if let Some(deed) = self.action_for(partition, &tracked, verdict, stamp) {
            let at = self.stream.position_of(&tracked.key);
            let before = former_report.flatten().and_then(|former_report| former_report.at);
            self.write_check_result(partition, CheckResult { watch: tracked, at, stamp, before, deed }, room)
                .await;
        }
    }

    /// Returns the time of a check by the clock of the partition's server, in ms. Checks become due by that clock. The
    /// server of the key may be another one, and clocks of two servers are never compared. With several servers, the
    /// result is therefore the present time of the partition's clock.
    fn check_time_for(&self, partition: usize, stamp: ServerTime) -> u64 {
        let clock = &self.runtime.partitions[partition].clock;
        let of_another = self.peers.as_ref().and_then(|_| clock.bound());
        of_another.map_or(stamp, |_| clock.at_least(Instant::now())).ms()
    }

    /// Returns whether the record of an announced expiry may be lost: the server of the partition may have been
    /// replaced. If it is the only server, it has the record and the tracked key, or neither.
    fn is_record_lost(&self, tracked: &TrackedKey, stamp: ServerTime) -> bool {
        self.peers.is_some() && stamp.ms() >= tracked.deadline + ms_ceil(RECORD_TIMEOUT)
    }

    pub(super) async fn write_check_result(
        &self,
        partition: usize,
        judged: CheckResult,
        room: ReadReservation,
    ) {
        self.write(partition, Write::ApplyCheck(judged), room).await;
    }

    /// Returns the action of a verdict, and counts it. None if recording the expiry ends the tracking.
    pub(super) fn action_for(
        &self,
        partition: usize,
        tracked: &TrackedKey,
        verdict: Verdict,
        stamp: ServerTime,
    ) -> Option<CheckAction> {
        let topic = self.topic(partition);
        let fire = |expiry: Expiry| CheckAction::Fire { arming: ArmingId::random(), flags: expiry.flags() };
        let (counter, deed) = match verdict {
            // Recording the expiry left the key tracked, as another server announced it and a later expiry was
            // possible.
            Verdict::Lapsed if tracked.announced_elsewhere => (None, CheckAction::Forget),
            // The policy on recovered keys does not apply, as the expiry was announced. A late record finds the trace
            // of this one.
            Verdict::Lapsed if self.is_record_lost(tracked, stamp) => {
                debug!(key = %Escaped(&tracked.key), "expiry announced, but its record was lost with a replaced server: recovered");
                (Some(&topic.attached.recovered), fire(Expiry::Recovered))
            }
            // Recording the expiry ends the tracking.
            Verdict::Lapsed => return None,
            Verdict::NotYet | Verdict::Extended | Verdict::Unproven => (
                None,
                CheckAction::Again {
                    at: self.check_time_for(partition, stamp) + next_check_delay(tracked, stamp),
                },
            ),
            Verdict::Persisted => (Some(&topic.attached.persisted), CheckAction::Forget),
            Verdict::Deleted => (Some(&topic.attached.deleted), CheckAction::Forget),
            Verdict::Vanished if topic.policy().topic.vanished == Treatment::Fire => {
                (Some(&topic.attached.vanished), fire(Expiry::Vanished))
            }
            Verdict::Vanished => (Some(&topic.attached.vanished), CheckAction::Forget),
            Verdict::Recovered if topic.policy().topic.recovered == Treatment::Ignore => {
                debug!(key = %Escaped(&tracked.key), "key is gone, and events may have been missed: ignored by the topic's policy");
                (Some(&topic.attached.not_recovered), CheckAction::Forget)
            }
            Verdict::Recovered => {
                debug!(key = %Escaped(&tracked.key), "key is gone, and events may have been missed: recovered");
                (Some(&topic.attached.recovered), fire(Expiry::Recovered))
            }
        };
        if let Some(counter) = counter {
            counter.add(1);
        }
        Some(deed)
    }

    /// Decides again on unproven keys, after a heartbeat or once the time of the anchor is known.
    pub(super) async fn decide_unproven(&mut self) {
        for checked in mem::take(&mut self.unproven) {
            let evidence = match checked.former_report {
                None => self.stream.evidence_for(&checked.tracked, checked.checked_after),
                Some(former_report) => {
                    self.evidence_for_moved(&checked.tracked, former_report, checked.checked_after)
                }
            };
            match decide(KeyState::Gone, evidence) {
                Verdict::Unproven => self.unproven.push(checked),
                Verdict::Recovered if self.pending.has_in_last_gap(&checked.tracked.key) => {}
                verdict => self.write_action(checked, verdict).await,
            }
        }
    }

    /// Ends the tracking of deleted keys, unless another event of the key followed. No event was missed up to this
    /// heartbeat.
    pub(super) async fn untrack_deleted(&mut self) {
        for (partition, deleted) in mem::take(&mut self.deleted) {
            if self.stream.deleted_at(&deleted.key) == Some(deleted.at) {
                self.topic(partition).attached.deleted.add(1);
                self.write(partition, Write::Track(deleted, None), ReadReservation::default()).await;
            }
        }
    }

    /// Asks the servers on which the deadlines of these keys were read for the keys' events there. Decides without a report
    /// if such a server is gone.
    async fn ask_former_owners(
        &mut self,
        partition: usize,
        keys: Vec<(TrackedKey, KeySnapshot)>,
        sent: SentAt,
        room: ReadReservation,
    ) {
        let (checked_after, back) = (self.stream.last_canary, self.own_requests.clone());
        let mut by_node: Vec<(NodeId, Vec<MovedKey>)> = Vec::new();
        for (tracked, found) in keys {
            let node = tracked.at.node;
            let key = MovedKey { tracked, found, former_report: None };
            match by_node.iter_mut().find(|(one, _)| *one == node) {
                Some((_, keys)) => keys.push(key),
                None => by_node.push((node, vec![key])),
            }
        }
        for (node, keys) in by_node {
            let moved =
                MovedKeys { partition, keys, sent, checked_after, room: room.clone(), back: back.clone() };
            match self.readers.of_node(node) {
                // If the queue is full, the keys are checked again later.
                Some(former) => _ = former.try_send(ReaderRequest::ReportMoved(moved)),
                None => self.decide_moved(moved).await,
            }
        }
    }

    /// Reports this server's events of keys that have moved, if its own read was answered: all events that were published
    /// before that read have then been processed.
    pub(super) fn answer_as_former_owner(&self, mut moved: MovedKeys, is_answered: bool) {
        for MovedKey { tracked, former_report, .. } in moved.keys.iter_mut().filter(|_| is_answered) {
            let at = self.stream.is_anchored().then(|| self.stream.position_of(&tracked.key));
            let unbroken = self.is_trusted() && self.stream.is_unbroken_since(tracked);
            // A pending expiry of a gap has no position in the stream.
            let expired = self.stream.expired_since(tracked) || self.pending.has_in_last_gap(&tracked.key);
            *former_report = Some(FormerOwnerReport { expired, unbroken, at });
        }
        let back = moved.back.clone();
        // If the queue is full, the keys are checked again later.
        let _ = back.try_send(ReaderRequest::DecideMoved(moved));
    }

    /// Decides on keys that have moved, after the report of the other server. In a gap it does nothing, and the keys are
    /// checked again later.
    pub(super) async fn decide_moved(&mut self, moved: MovedKeys) {
        if !self.can_use_reads() {
            return;
        }
        let MovedKeys { partition, keys, sent, checked_after, room, .. } = moved;
        for MovedKey { tracked, found: KeySnapshot { stamp, life, copy }, former_report } in keys {
            let state = match key_state_of(life, &tracked, stamp) {
                // The deadline is unchanged, but must be tracked with a position on this server.
                Some(KeyState::SameDeadline) => KeyState::OtherDeadline,
                Some(state) => state,
                None => continue,
            };
            let verdict = decide(state, self.evidence_for_moved(&tracked, former_report, checked_after));
            let checked = CheckedKey {
                partition,
                tracked,
                stamp,
                checked_after,
                former_report: Some(former_report),
                room: room.clone(),
            };
            self.apply_verdict(checked, verdict, (life, copy), sent).await;
        }
    }

    /// Returns the evidence of both servers on a key that has moved. Deletions do not count, as a move deletes the key,
    /// too.
    fn evidence_for_moved(
        &self,
        tracked: &TrackedKey,
        former_report: Option<FormerOwnerReport>,
        checked_after: u64,
    ) -> StreamEvidence {
        let FormerOwnerReport { expired, unbroken, .. } =
            former_report.unwrap_or(FormerOwnerReport { expired: false, unbroken: false, at: None });
        if tracked.announced_elsewhere || expired {
            return StreamEvidence::Expired;
        }
        if !unbroken || !self.is_trusted() {
            return StreamEvidence::Broken;
        }
        if self.stream.lacks_anchor_time() {
            return StreamEvidence::NothingYet;
        }
        if !self.stream.is_anchored_before(tracked.deadline) {
            return StreamEvidence::Broken;
        }
        if self.stream.has_canary_after(checked_after) {
            StreamEvidence::Nothing
        } else {
            StreamEvidence::NothingYet
        }
    }

    /// Sends checks of keys to the readers of the servers that now have them.
    fn forward_checks(&self, check: DeadlineCheck) {
        let DeadlineCheck { partition, keys, capture, horizon, room } = check;
        for (owner, keys) in self.readers.divide_by_reader(keys, |tracked| &tracked.key) {
            // If the slot map still names this server, the keys are checked again later.
            if !owner.same_channel(&self.own_requests) {
                let (capture, room) = (capture.clone(), room.clone());
                let _ = owner.try_send(ReaderRequest::Check(DeadlineCheck {
                    partition,
                    keys,
                    capture,
                    horizon,
                    room,
                }));
            }
        }
    }
}

/// Returns the state of a key at its check. None if another server has the key.
fn key_state_of(life: KeyDeadline, tracked: &TrackedKey, now: ServerTime) -> Option<KeyState> {
    Some(match life {
        KeyDeadline::Elsewhere => return None,
        KeyDeadline::Until(deadline) if deadline == tracked.deadline => KeyState::SameDeadline,
        KeyDeadline::Until(_) => KeyState::OtherDeadline,
        KeyDeadline::Persistent => KeyState::NoDeadline,
        KeyDeadline::Gone if now.ms() < tracked.deadline => KeyState::GoneEarly,
        KeyDeadline::Gone => KeyState::Gone,
    })
}

/// Returns the time until the next check of a key, in ms. It ends 2 ms after the deadline, if that is ahead. Otherwise it
/// is a quarter of the time since the deadline, but from 2 ms to 1 s.
fn next_check_delay(tracked: &TrackedKey, stamp: ServerTime) -> u64 {
    let (now, deadline) = (stamp.ms(), tracked.deadline);
    deadline.saturating_sub(now) + (now.saturating_sub(deadline) / 4).clamp(2, 1000)
}
