//! Gaps in the event stream, and the expiries that arrive in them.
//!
//! An expiry in a gap waits for a heartbeat that identifies it, and for a read of its key after that. Other listeners
//! may have recorded it already: firing twice is better than never. All listeners that received it in a gap agree on
//! its identity: the heartbeat, and how many expiries of the key come between the two. Therefore it fires at most once
//! more.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::held::GapBatch;
use crate::attached::reader::touching::MAX_RECHECKS_IN_FLIGHT;
use crate::attached::reader::{StreamReader, arming_id_of};
use crate::attached::request::{ReadReservation, ReaderRequest, SentAt};
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::events::FoundKeys;
use crate::id::ArmingId;
use crate::log::warn;
use crate::policy::CopySpec;
use crate::runtime::EventMode;
use crate::time::ServerTime;
use crate::wire::{
    AnnouncedExpiry, CheckAction, CheckResult, ExpiryIdentity, KeyAbsence, KeyDeadline, Position, TrackedKey,
};

/// A gap begins after this time without a heartbeat. Before the first heartbeat it begins immediately.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

impl StreamReader {
    /// Requires a new confirmation of the server's role, as it may have been replaced.
    pub(super) fn mark_unconfirmed(&mut self) {
        self.held.mark_unconfirmed();
        self.asking.forget();
    }

    /// Starts a gap: events may be missing from here on.
    pub(super) fn lost(&mut self) {
        self.stream.lose();
        self.held.close_gap(false);
        self.mark_unconfirmed();
        self.unproven.clear();
        self.deadlines.invalidate_all();
        self.runtime.learn(&self.node, |known| {
            known.anchored = false;
            known.can_track = known.mode.receives_nothing();
        });
    }

    /// Starts a gap after events were lost. Expiries of a gap before it get no identity if no heartbeat came in
    /// between, as they cannot be counted.
    pub(super) fn missed(&mut self) {
        self.held.close_gap(true);
        self.lost();
    }

    /// Starts a gap after the subscription has ended, and with it the reads on its connection.
    pub(super) fn disconnected(&mut self, mode: EventMode) {
        self.dropped();
        self.unheard(mode);
    }

    /// Starts a gap after events were dropped, perhaps with answers to reads. The requesters repeat their requests.
    pub(super) fn dropped(&mut self) {
        self.missed();
        self.forget_touches();
    }

    /// Handles a missing heartbeat. If it is only late, it arrives in turn and no event was missed, so a single server
    /// has until `SILENCE_TIMEOUT`. One of several servers may be replaced in less time, so its gap begins immediately.
    pub(super) fn silent(&mut self) {
        if self.peers.is_some() {
            self.lost();
        }
        self.runtime.learn(&self.node, |known| known.anchored = false);
        self.unheard(EventMode::ScanOnly);
    }

    fn unheard(&mut self, mode: EventMode) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SILENCE_TIMEOUT || self.deaf {
            self.lost();
            self.runtime.learn(&self.node, |known| {
                known.mode = mode;
                known.can_track = true;
            });
        }
    }

    /// Identifies the expiries of a gap by the heartbeat after it, and reads their keys together with the time of the
    /// anchor. Every expiry that was announced before the answer is recorded first. If a key is gone, no expiry of a
    /// deadline that was read earlier can follow.
    pub(super) fn name_gap_expiries(&mut self, canary: u64) {
        let count = self.held.name(canary);
        if count > 0 {
            warn_of(count);
        }
        // With several servers, the keys are read once this one is confirmed.
        if self.peers.is_none() {
            self.read_unsure();
        } else if !self.held.is_confirmed() {
            self.submit_request(ReaderRequest::Anchor(Vec::new()));
        }
    }

    /// Reads the keys of the last gap, if a heartbeat has identified it. Reads the server's time in any case.
    pub(super) fn read_unsure(&mut self) {
        let first = self.held.next_to_read(CopySpec::default().keys_in_touch());
        self.submit_request(ReaderRequest::Anchor(first));
        self.read_more_unsure();
    }

    /// Reads more keys of the gap, with few reads in flight: each takes memory for its keys, its request and its
    /// answer.
    fn read_more_unsure(&mut self) {
        while self.on_their_way(|request| matches!(request, ReaderRequest::Anchor(_)))
            < MAX_RECHECKS_IN_FLIGHT
        {
            let keys = self.held.next_to_read(CopySpec::default().keys_in_touch());
            if keys.is_empty() {
                break;
            }
            self.submit_request(ReaderRequest::Anchor(keys));
        }
    }

    /// Identifies the expiries of a gap by a heartbeat that this listener does not trust. Other listeners may trust it,
    /// and identify the same expiries by it. Therefore the expiries wait for no other heartbeat.
    pub(super) fn name_gap_by_unverified(&mut self, canary: u64) {
        let count = self.held.name(canary);
        if count > 0 {
            warn_of(count);
            self.held.close_gap(false);
        }
    }

    /// Records expiries of a gap after their keys were read, or could not be read.
    pub(super) async fn record_gap_expiries(
        &mut self,
        keys: Vec<Bytes>,
        answer: Option<FoundKeys>,
        sent: SentAt,
    ) {
        let Some(canary) = self.held.canary() else { return };
        let mut found = answer.unwrap_or_default().1.into_iter();
        for key in keys {
            let (found, partition) = (found.next(), self.runtime.route(&key));
            let gone = found.filter(|found| found.life == KeyDeadline::Gone).zip(partition).map(
                |(found, partition)| {
                    let (at, stamp) = (self.stream.position_of(&key), found.stamp);
                    KeyAbsence { at, stamp, requested_at: self.asked_at(partition, sent) }
                },
            );
            if let Some(times) = self.held.remove(&key) {
                self.fire_gap_expiry(key, times, Some(canary), gone).await;
            }
        }
        self.read_more_unsure();
    }

    /// Records the expiries of earlier gaps, if the server is confirmed and the stream is anchored. The only server
    /// needs neither.
    pub(super) async fn fire_closed_gaps(&mut self) {
        if self.peers.is_some() && !self.is_trusted() {
            return;
        }
        for GapBatch { keys, canary } in self.held.take_closed_gaps() {
            if canary.is_none() && !keys.is_empty() {
                warn_of(keys.len());
            }
            for (key, times) in keys {
                self.fire_gap_expiry(key, times, canary, None).await;
            }
        }
    }

    async fn fire_gap_expiry(&self, key: Bytes, times: u32, canary: Option<u64>, gone: Option<KeyAbsence>) {
        let Some(partition) = self.runtime.route(&key) else { return };
        let node = self.stream.node();
        for back in 1..=times {
            self.topic(partition).attached.ambiguous.add(1);
            let (identity, arming) = match canary {
                Some(canary) => {
                    let arming = arming_id_of(&key, Position { node, canary, count: back }, true);
                    (ExpiryIdentity::Gap { node, canary, back, gone }, arming)
                }
                None => (ExpiryIdentity::Unknown(node), ArmingId::random()),
            };
            let note = AnnouncedExpiry { key: key.clone(), identity, arming };
            self.write(partition, Write::Note(note), ReadReservation::default()).await;
        }
    }

    /// Handles a tracked key that is gone and expired in a gap. Recording the expiry usually ends the tracking. Without
    /// heartbeats it is not recorded, and this check fires it.
    pub(super) async fn end_unsure(
        &mut self,
        partition: usize,
        watch: TrackedKey,
        stamp: ServerTime,
        room: ReadReservation,
    ) {
        if !self.node.known().mode.receives_nothing() || !self.held.take_one(&watch.key) {
            return;
        }
        self.topic(partition).attached.ambiguous.add(1);
        let deed = CheckAction::Fire { arming: ArmingId::random(), flags: Expiry::Ambiguous.flags() };
        let at = self.stream.position_of(&watch.key);
        self.judge(partition, CheckResult { watch, at, stamp, before: None, deed }, room).await;
    }
}

fn warn_of(count: usize) {
    warn!(count, "attached keys expired in a gap of the event stream: their handlers may run twice");
}
