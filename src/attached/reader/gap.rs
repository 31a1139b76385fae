//! Gaps in the event stream, and the expiries that arrive in them.
//!
//! A gap begins when events were lost or dropped, when the connection is lost, when no heartbeat arrives in time
//! ([`begin_gap`](StreamReader::begin_gap)), or when a heartbeat does not follow the last one. The next heartbeat ends it,
//! but for one of several servers only once its role is confirmed, too.
//!
//! An expiry in a gap waits for a heartbeat that identifies it, and for a read of its key after that. Other listeners
//! may have recorded it already: firing twice is better than never. All listeners that received it in a gap agree on
//! its identity: the heartbeat, and how many expiries of the key come between the two. Therefore it fires at most once
//! more.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::pending::GapBatch;
use crate::attached::reader::reads::MAX_RECHECKS_IN_FLIGHT;
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

/// A gap begins when no heartbeat arrived for this long after one was missing. Before the listener's first heartbeat it
/// begins immediately.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

impl StreamReader {
    /// Requires a new confirmation of the server's role, as another server may have replaced it.
    pub(super) fn mark_unconfirmed(&mut self) {
        self.pending.mark_unconfirmed();
        self.role_query.cancel();
    }

    /// Begins a gap, or continues it: events may have been missed, and positions are unknown until the next heartbeat.
    pub(super) fn begin_gap(&mut self) {
        self.stream.remove_anchor();
        self.pending.close_gap(false);
        self.mark_unconfirmed();
        self.unproven.clear();
        self.deadlines.invalidate_all();
        self.runtime.update_stream(&self.node, |known| {
            known.anchored = false;
            known.can_track = known.mode.receives_nothing();
        });
    }

    /// Begins a gap after events were lost. Pending expiries that no heartbeat has identified get no identity, as their
    /// number before the next heartbeat is unknown.
    pub(super) fn on_events_lost(&mut self) {
        self.pending.close_gap(true);
        self.begin_gap();
    }

    /// Begins a gap after the subscription has ended or has failed. Reads on its connection get no answer. If this lasts,
    /// changes to `mode`.
    pub(super) fn on_disconnected(&mut self, mode: EventMode) {
        self.on_dropped();
        self.change_mode_if_silent(mode);
    }

    /// Begins a gap after events were dropped, perhaps with answers to reads. The requesters repeat their requests.
    pub(super) fn on_dropped(&mut self) {
        self.on_events_lost();
        self.forget_reads();
    }

    /// Handles a missing heartbeat. If it is only late, it arrives in turn and no event was missed, so a single server
    /// has until `SILENCE_TIMEOUT`. One of several servers may be replaced in less time, so its gap begins immediately.
    pub(super) fn on_silent(&mut self) {
        if self.peers.is_some() {
            self.begin_gap();
        }
        self.runtime.update_stream(&self.node, |known| known.anchored = false);
        self.change_mode_if_silent(EventMode::ScanOnly);
    }

    /// If no heartbeat arrived for `SILENCE_TIMEOUT`, begins a gap and changes to `mode`, in which keys are tracked and
    /// checked without events.
    fn change_mode_if_silent(&mut self, mode: EventMode) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SILENCE_TIMEOUT || self.awaits_first_canary {
            self.begin_gap();
            self.runtime.update_stream(&self.node, |known| {
                known.mode = mode;
                known.can_track = true;
            });
        }
    }

    /// Identifies the expiries of a gap by the heartbeat after it, and reads their keys together with the time of the
    /// anchor. If a key is gone in the answer, no expiry of a deadline that was read earlier can follow: every expiry that
    /// was announced before the answer is recorded before it.
    pub(super) fn identify_gap_expiries(&mut self, canary: u64) {
        let count = self.pending.identify_last_gap(canary);
        if count > 0 {
            warn_of_repeats(count);
        }
        // With several servers, the keys are read once this one is confirmed.
        if self.peers.is_none() {
            self.read_gap_keys();
        } else if !self.pending.is_confirmed() {
            self.submit_request(ReaderRequest::Anchor(Vec::new()));
        }
    }

    /// Reads the first keys of the last gap, if a heartbeat has identified it. Reads the server's time in any case.
    pub(super) fn read_gap_keys(&mut self) {
        let first = self.pending.next_to_read(CopySpec::default().keys_in_touch());
        self.submit_request(ReaderRequest::Anchor(first));
        self.read_more_gap_keys();
    }

    /// Reads further keys of the gap, with few reads in flight: each takes memory for its keys, its request and its
    /// answer.
    fn read_more_gap_keys(&mut self) {
        while self.count_in_flight(|request| matches!(request, ReaderRequest::Anchor(_)))
            < MAX_RECHECKS_IN_FLIGHT
        {
            let keys = self.pending.next_to_read(CopySpec::default().keys_in_touch());
            if keys.is_empty() {
                break;
            }
            self.submit_request(ReaderRequest::Anchor(keys));
        }
    }

    /// Identifies the expiries of a gap by a heartbeat that this listener has not verified. Other listeners may have
    /// verified it, and identify the same expiries by it. Therefore the expiries wait for no other heartbeat.
    pub(super) fn identify_gap_by_unverified(&mut self, canary: u64) {
        let count = self.pending.identify_last_gap(canary);
        if count > 0 {
            warn_of_repeats(count);
            self.pending.close_gap(false);
        }
    }

    /// Records expiries of a gap after their keys were read, or could not be read (`answer` is None).
    pub(super) async fn on_gap_keys_read(
        &mut self,
        keys: Vec<Bytes>,
        answer: Option<FoundKeys>,
        sent: SentAt,
    ) {
        let Some(canary) = self.pending.last_gap_canary() else { return };
        let mut found = answer.unwrap_or_default().1.into_iter();
        for key in keys {
            let (found, partition) = (found.next(), self.runtime.route(&key));
            let gone = found.filter(|found| found.life == KeyDeadline::Gone).zip(partition).map(
                |(found, partition)| {
                    let (at, stamp) = (self.stream.position_of(&key), found.stamp);
                    KeyAbsence { at, stamp, requested_at: self.earliest_sent(partition, sent) }
                },
            );
            if let Some(times) = self.pending.remove_key(&key) {
                self.record_gap_expiry(key, times, Some(canary), gone).await;
            }
        }
        self.read_more_gap_keys();
    }

    /// Records the expiries of closed gaps, without a read of their keys. Waits until the server is confirmed and the
    /// stream is anchored, unless it is the only server.
    pub(super) async fn record_closed_gaps(&mut self) {
        if self.peers.is_some() && !self.is_trusted() {
            return;
        }
        for GapBatch { keys, canary } in self.pending.take_closed_gaps() {
            if canary.is_none() && !keys.is_empty() {
                warn_of_repeats(keys.len());
            }
            for (key, times) in keys {
                self.record_gap_expiry(key, times, canary, None).await;
            }
        }
    }

    /// Records all `times` expiries of a key in a gap. They have no identity if no heartbeat identified the gap.
    async fn record_gap_expiry(&self, key: Bytes, times: u32, canary: Option<u64>, gone: Option<KeyAbsence>) {
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
            self.write(partition, Write::RecordExpiry(note), ReadReservation::default()).await;
        }
    }

    /// Handles a checked key that is gone, and whose expiry in the last gap is pending. Usually recording the expiry fires
    /// it, and nothing is done here. In a mode without events no heartbeat identifies the expiry, so this check fires it.
    pub(super) async fn fire_pending_without_events(
        &mut self,
        partition: usize,
        tracked: TrackedKey,
        stamp: ServerTime,
        room: ReadReservation,
    ) {
        if !self.node.stream_snapshot().mode.receives_nothing()
            || !self.pending.remove_one_expiry(&tracked.key)
        {
            return;
        }
        self.topic(partition).attached.ambiguous.add(1);
        let deed = CheckAction::Fire { arming: ArmingId::random(), flags: Expiry::Ambiguous.flags() };
        let at = self.stream.position_of(&tracked.key);
        self.write_check_result(
            partition,
            CheckResult { watch: tracked, at, stamp, before: None, deed },
            room,
        )
        .await;
    }
}

fn warn_of_repeats(count: usize) {
    warn!(count, "attached keys expired in a gap of the event stream: their handlers may run twice");
}
