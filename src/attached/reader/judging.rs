//! Processes the answers to reads: tracks deadlines, and decides on checked keys. For a key whose deadline was read on
//! another server, the evidence of both servers counts.

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

/// A key is recovered if it is still tracked this long after its expiry was announced. The record of the expiry was
/// lost with a replaced server, or is late and then finds the recovery.
const NOTE_TIMEOUT: Duration = Duration::from_secs(5);

impl StreamReader {
    /// Processes a read of deadlines alone. Keys that the index checks in time need nothing more. All others are read
    /// again with a position, which this read does not have.
    pub(super) async fn glanced(&mut self, mut read: TrackRequest, (stamp, found): FoundKeys, sent: SentAt) {
        let mut lives = found.into_iter().map(|one| one.life);
        read.keys.retain(|key| match lives.next() {
            Some(KeyDeadline::Until(deadline)) if !self.stream.heard_since(key, sent.heard) => {
                !self.deadlines.covers(key, deadline, stamp)
            }
            _ => true,
        });
        if !read.keys.is_empty() {
            self.submit_request(ReaderRequest::Read(read));
        } else if let Some(done) = read.done {
            self.write(read.partition, Write::Done(done), ReadReservation::default()).await;
        }
    }

    /// Tracks the keys that have a deadline. A changed key without a deadline is written, too.
    pub(super) async fn track_keys(&mut self, read: TrackRequest, (_, found): FoundKeys, sent: SentAt) {
        let TrackRequest { partition, keys, capture, tries, prompted, done, room } = read;
        let (mut again, mut elsewhere) = (Vec::new(), Vec::new());
        for (key, KeySnapshot { stamp, life, copy }) in keys.into_iter().zip(found) {
            // The read may belong to the expiry cycle before the event, or to the one after it.
            if self.stream.heard_since(&key, sent.heard) {
                again.push(key);
                continue;
            }
            match life {
                // The index has this deadline or an earlier one, so a check comes in time.
                KeyDeadline::Until(deadline)
                    if prompted && copy.is_empty() && self.deadlines.covers(&key, deadline, stamp) => {}
                KeyDeadline::Until(deadline) => {
                    self.remember(partition, key, deadline, (stamp, sent), copy, room.clone()).await;
                }
                KeyDeadline::Persistent if prompted => {
                    self.remember(partition, key, 0, (stamp, sent), copy, room.clone()).await;
                }
                KeyDeadline::Elsewhere => elsewhere.push(key),
                KeyDeadline::Gone if prompted && self.deleted.len() < MAX_DELETED_KEYS => {
                    if let Some(at) = self.stream.deleted_at(&key) {
                        let asked = self.asked_at(partition, sent);
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
            self.write(partition, Write::Done(done), ReadReservation::default()).await;
        }
        let read = |keys| TrackRequest {
            tries: tries - 1,
            prompted,
            room: room.clone(),
            ..TrackRequest::of(partition, keys, capture.clone())
        };
        if !again.is_empty() && tries > 0 {
            self.submit_request(ReaderRequest::Read(read(again)));
        }
        if !elsewhere.is_empty() && tries > 0 {
            for (owner, keys) in self.readers.share_out(elsewhere, |key| key) {
                let _ = owner.try_send(ReaderRequest::Read(read(keys)));
            }
        }
    }

    /// Tracks a deadline that was just read. A deadline of 0 means that the key has none.
    pub(super) async fn remember(
        &self,
        partition: usize,
        key: Bytes,
        deadline: u64,
        (stamp, sent): (ServerTime, SentAt),
        copy: Bytes,
        room: ReadReservation,
    ) {
        let at = self.stream.position_of(&key);
        // Only a listener that tracks written keys of the topic needs to know its deadlines.
        let enrols = self.topic(partition).scanning.load(Ordering::Relaxed);
        let pending = match deadline {
            1.. if enrols && at.canary > 0 => self.deadlines.pend(&key, deadline, stamp),
            _ => {
                self.deadlines.forget(&key);
                None
            }
        };
        let asked = self.asked_at(partition, sent);
        let read = DeadlineReading { key, deadline, at, stamp, requested_at: asked, copy };
        self.write(partition, Write::Enrol(read, pending), room).await;
    }

    /// Decides on keys that were checked at their deadlines.
    pub(super) async fn look(&mut self, look: DeadlineCheck, (_, found): FoundKeys, sent: SentAt) {
        let DeadlineCheck { partition, watches, capture, horizon, room } = look;
        let (touched, mut moved, mut elsewhere) = (self.stream.number, Vec::new(), Vec::new());
        for (watch, found) in watches.into_iter().zip(found) {
            let Some(state) = key_state_of(found.life, &watch, found.stamp) else {
                elsewhere.push(watch);
                continue;
            };
            if self.peers.is_some() && watch.at.node != self.stream.node() {
                moved.push((watch, found));
                continue;
            }
            let KeySnapshot { stamp, life, copy } = found;
            let verdict = decide(state, self.stream.evidence_for(&watch, touched));
            let one = CheckedKey { partition, watch, stamp, touched, there: None, room: room.clone() };
            self.conclude(one, verdict, (life, copy), sent).await;
        }
        self.look_elsewhere(DeadlineCheck {
            partition,
            watches: elsewhere,
            capture,
            horizon,
            room: room.clone(),
        });
        if !moved.is_empty() {
            self.ask_former_owners(partition, moved, sent, room).await;
        }
    }

    /// Applies the verdict on a checked key. Tracks a new deadline or value, keeps an unproven key until a heartbeat,
    /// or writes the action of the verdict.
    async fn conclude(
        &mut self,
        one: CheckedKey,
        verdict: Verdict,
        (life, copy): (KeyDeadline, Bytes),
        sent: SentAt,
    ) {
        // The read may belong to the expiry cycle before an event or after it. In that case the key is checked again.
        let fresh = !self.stream.heard_since(&one.watch.key, sent.heard);
        let early = one.stamp.ms() < one.watch.deadline;
        match (verdict, life) {
            (Verdict::Unproven, _) => self.unproven.push(one),
            (Verdict::Extended, KeyDeadline::Until(deadline)) if fresh => {
                self.topic(one.partition).attached.extended.add(1);
                self.remember(one.partition, one.watch.key, deadline, (one.stamp, sent), copy, one.room)
                    .await;
            }
            // This check came shortly before the deadline, and has read the value once more.
            (Verdict::NotYet, KeyDeadline::Until(deadline)) if fresh && early && !copy.is_empty() => {
                self.remember(one.partition, one.watch.key, deadline, (one.stamp, sent), copy, one.room)
                    .await;
            }
            // Its expiry was received in a gap. Recording it fires, and one expiry fires once.
            (Verdict::Recovered, _) if self.held.has(&one.watch.key) => {
                self.end_unsure(one.partition, one.watch, one.stamp, one.room).await;
            }
            (verdict, _) => self.apply_verdict(one, verdict).await,
        }
    }

    /// Writes the action of a verdict, if it has one.
    async fn apply_verdict(&self, one: CheckedKey, verdict: Verdict) {
        let CheckedKey { partition, watch, stamp, there, room, .. } = one;
        if let Some(deed) = self.action_for(partition, &watch, verdict, stamp) {
            let at = self.stream.position_of(&watch.key);
            let before = there.flatten().and_then(|there| there.at);
            self.judge(partition, CheckResult { watch, at, stamp, before, deed }, room).await;
        }
    }

    /// Returns the time of a check, in ms of the partition's clock, by which checks become due. A single server has the
    /// same clock. The clocks of two servers are never compared: the result is then the partition's present time.
    fn moment(&self, partition: usize, stamp: ServerTime) -> u64 {
        let clock = &self.runtime.partitions[partition].clock;
        let of_another = self.peers.as_ref().and_then(|_| clock.known());
        of_another.map_or(stamp, |_| clock.at_least(Instant::now())).ms()
    }

    /// Returns whether the record of an announced expiry may be lost: the server of the partition may have been
    /// replaced. If it is the only server, it has the record and the tracked key, or neither.
    fn is_note_lost(&self, watch: &TrackedKey, stamp: ServerTime) -> bool {
        self.peers.is_some() && stamp.ms() >= watch.deadline + ms_ceil(NOTE_TIMEOUT)
    }

    pub(super) async fn judge(&self, partition: usize, judged: CheckResult, room: ReadReservation) {
        self.write(partition, Write::Judge(judged), room).await;
    }

    /// Returns the action of a verdict, if it has one, and counts it.
    pub(super) fn action_for(
        &self,
        partition: usize,
        watch: &TrackedKey,
        verdict: Verdict,
        stamp: ServerTime,
    ) -> Option<CheckAction> {
        let topic = self.topic(partition);
        let fire = |expiry: Expiry| CheckAction::Fire { arming: ArmingId::random(), flags: expiry.flags() };
        let (counter, deed) = match verdict {
            // Recording the expiry left the key tracked, as another server announced it and a later expiry was
            // possible.
            Verdict::Lapsed if watch.announced_elsewhere => (None, CheckAction::Forget),
            // The policy on recovered keys does not apply, as the expiry was announced. A late record finds the trace
            // of this one.
            Verdict::Lapsed if self.is_note_lost(watch, stamp) => {
                debug!(key = %Escaped(&watch.key), "expiry announced, but its record was lost with a replaced server: recovered");
                (Some(&topic.attached.recovered), fire(Expiry::Recovered))
            }
            // Recording the expiry ends the tracking.
            Verdict::Lapsed => return None,
            Verdict::NotYet | Verdict::Extended | Verdict::Unproven => {
                (None, CheckAction::Again { at: self.moment(partition, stamp) + pause(watch, stamp) })
            }
            Verdict::Persisted => (Some(&topic.attached.persisted), CheckAction::Forget),
            Verdict::Deleted => (Some(&topic.attached.deleted), CheckAction::Forget),
            Verdict::Vanished if topic.policy().topic.vanished == Treatment::Fire => {
                (Some(&topic.attached.vanished), fire(Expiry::Vanished))
            }
            Verdict::Vanished => (Some(&topic.attached.vanished), CheckAction::Forget),
            Verdict::Recovered if topic.policy().topic.recovered == Treatment::Ignore => {
                debug!(key = %Escaped(&watch.key), "key is gone, and events may have been missed: ignored by the topic's policy");
                (Some(&topic.attached.not_recovered), CheckAction::Forget)
            }
            Verdict::Recovered => {
                debug!(key = %Escaped(&watch.key), "key is gone, and events may have been missed: recovered");
                (Some(&topic.attached.recovered), fire(Expiry::Recovered))
            }
        };
        if let Some(counter) = counter {
            counter.add(1);
        }
        Some(deed)
    }

    /// Decides again on keys whose verdict was not proven.
    pub(super) async fn judge_unproven(&mut self) {
        for one in mem::take(&mut self.unproven) {
            let evidence = match one.there {
                None => self.stream.evidence_for(&one.watch, one.touched),
                Some(there) => self.evidence_for_moved(&one.watch, there, one.touched),
            };
            match decide(KeyState::Gone, evidence) {
                Verdict::Unproven => self.unproven.push(one),
                Verdict::Recovered if self.held.has(&one.watch.key) => {}
                verdict => self.apply_verdict(one, verdict).await,
            }
        }
    }

    /// Stops tracking deleted keys. No event was missed up to this heartbeat, so the deletion was the last event of
    /// each key.
    pub(super) async fn forget_deleted(&mut self) {
        for (partition, forgotten) in mem::take(&mut self.deleted) {
            if self.stream.deleted_at(&forgotten.key) == Some(forgotten.at) {
                self.topic(partition).attached.deleted.add(1);
                self.write(partition, Write::Enrol(forgotten, None), ReadReservation::default()).await;
            }
        }
    }

    /// Asks the former servers of these keys for the events there. Decides without a report if a server is gone.
    async fn ask_former_owners(
        &mut self,
        partition: usize,
        keys: Vec<(TrackedKey, KeySnapshot)>,
        sent: SentAt,
        room: ReadReservation,
    ) {
        let (touched, back) = (self.stream.number, self.own_requests.clone());
        let mut by_node: Vec<(NodeId, Vec<MovedKey>)> = Vec::new();
        for (watch, found) in keys {
            let node = watch.at.node;
            let key = MovedKey { watch, found, there: None };
            match by_node.iter_mut().find(|(one, _)| *one == node) {
                Some((_, keys)) => keys.push(key),
                None => by_node.push((node, vec![key])),
            }
        }
        for (node, keys) in by_node {
            let moved = MovedKeys { partition, keys, sent, touched, room: room.clone(), back: back.clone() };
            match self.readers.of_node(node) {
                // If the queue is full, the keys are checked again later.
                Some(former) => _ = former.try_send(ReaderRequest::Recall(moved)),
                None => self.judge_moved(moved).await,
            }
        }
    }

    /// Reports the events of keys that have moved. All events that were published before the request have been
    /// processed.
    pub(super) fn answer_as_former_owner(&self, mut moved: MovedKeys, is_answered: bool) {
        for MovedKey { watch, there, .. } in moved.keys.iter_mut().filter(|_| is_answered) {
            let at = self.stream.is_anchored().then(|| self.stream.position_of(&watch.key));
            let whole = self.is_trusted() && self.stream.is_whole_since(watch);
            // An expiry that was received in a gap has no position in the stream.
            let expired = self.stream.expired_since(watch) || self.held.has(&watch.key);
            *there = Some(FormerOwnerReport { expired, whole, at });
        }
        let back = moved.back.clone();
        // If the queue is full, the keys are checked again later.
        let _ = back.try_send(ReaderRequest::Judge(moved));
    }

    /// Decides on keys that have moved. In a gap it does nothing, and the keys are checked again later.
    pub(super) async fn judge_moved(&mut self, moved: MovedKeys) {
        if !self.has_positions() {
            return;
        }
        let MovedKeys { partition, keys, sent, touched, room, .. } = moved;
        for MovedKey { watch, found: KeySnapshot { stamp, life, copy }, there } in keys {
            let state = match key_state_of(life, &watch, stamp) {
                // Its deadline is unchanged, but must be tracked with a position on this server.
                Some(KeyState::SameDeadline) => KeyState::OtherDeadline,
                Some(state) => state,
                None => continue,
            };
            let verdict = decide(state, self.evidence_for_moved(&watch, there, touched));
            let one = CheckedKey { partition, watch, stamp, touched, there: Some(there), room: room.clone() };
            self.conclude(one, verdict, (life, copy), sent).await;
        }
    }

    /// Returns the evidence of both servers. Deletions do not count, as a move deletes the key, too.
    fn evidence_for_moved(
        &self,
        watch: &TrackedKey,
        there: Option<FormerOwnerReport>,
        touched: u64,
    ) -> StreamEvidence {
        let FormerOwnerReport { expired, whole, .. } =
            there.unwrap_or(FormerOwnerReport { expired: false, whole: false, at: None });
        if watch.announced_elsewhere || expired {
            return StreamEvidence::Expired;
        }
        if !whole || !self.is_trusted() {
            return StreamEvidence::Broken;
        }
        if self.stream.is_untimed() {
            return StreamEvidence::NothingYet;
        }
        if !self.stream.is_anchored_before(watch.deadline) {
            return StreamEvidence::Broken;
        }
        if self.stream.is_beyond(touched) { StreamEvidence::Nothing } else { StreamEvidence::NothingYet }
    }

    /// Sends checks of keys to the readers of the servers that now have them.
    fn look_elsewhere(&self, look: DeadlineCheck) {
        let DeadlineCheck { partition, watches, capture, horizon, room } = look;
        for (owner, watches) in self.readers.share_out(watches, |watch| &watch.key) {
            // If the slot map still names this server, the keys are checked again later.
            if !owner.same_channel(&self.own_requests) {
                let (capture, room) = (capture.clone(), room.clone());
                let _ = owner.try_send(ReaderRequest::Look(DeadlineCheck {
                    partition,
                    watches,
                    capture,
                    horizon,
                    room,
                }));
            }
        }
    }
}

/// Returns the state of a key. None if another server has it.
fn key_state_of(life: KeyDeadline, watch: &TrackedKey, now: ServerTime) -> Option<KeyState> {
    Some(match life {
        KeyDeadline::Elsewhere => return None,
        KeyDeadline::Until(deadline) if deadline == watch.deadline => KeyState::SameDeadline,
        KeyDeadline::Until(_) => KeyState::OtherDeadline,
        KeyDeadline::Persistent => KeyState::NoDeadline,
        KeyDeadline::Gone if now.ms() < watch.deadline => KeyState::GoneEarly,
        KeyDeadline::Gone => KeyState::Gone,
    })
}

/// Returns the pause before the next check of a key, in ms. The check comes at the deadline if that is ahead. Otherwise
/// the pause is between 2 ms and 1 s, and grows with the delay.
fn pause(watch: &TrackedKey, stamp: ServerTime) -> u64 {
    let (now, deadline) = (stamp.ms(), watch.deadline);
    deadline.saturating_sub(now) + (now.saturating_sub(deadline) / 4).clamp(2, 1000)
}
