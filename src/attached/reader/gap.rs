//! How a gap begins, and what is heard in it: kept until a canary gives it a name and its keys were looked at after that.
//!
//! It may have been noted by others, or not: rather twice than never. All who hear it so agree on its name, which is
//! the canary and how many expiries of the key come before it: so it fires once more at most.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::held::Batch;
use crate::attached::reader::touching::AT_ONCE;
use crate::attached::reader::{StreamReader, identity};
use crate::attached::request::{Request, Sent, Taken};
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::events::Answer;
use crate::id::ArmingId;
use crate::log::warn;
use crate::policy::Capture;
use crate::runtime::EventMode;
use crate::time::ServerTime;
use crate::wire::{Deed, FoundGone, Identity, Judged, Life, Note, Position, Watch};

/// After so long without a canary nothing will be proven by the next, if there was one before.
const SILENT: Duration = Duration::from_secs(5);

impl StreamReader {
    /// It may have been replaced meanwhile.
    pub(super) fn doubt(&mut self) {
        self.held.doubt();
        self.asking.forget();
    }

    /// From here on something may be missing.
    pub(super) fn lost(&mut self) {
        self.stream.lose();
        self.held.tear(false);
        self.doubt();
        self.unproven.clear();
        self.deadlines.doubt();
        self.runtime.learn(&self.node, |known| {
            known.anchored = false;
            known.can_enrol = known.mode.hears_nothing();
        });
    }

    /// Something is missing: so what was heard in a gap before cannot be counted to its end.
    pub(super) fn missed(&mut self) {
        self.held.tear(true);
        self.lost();
    }

    /// The subscription is gone, and with it what was asked on its connection.
    pub(super) fn disconnected(&mut self, mode: EventMode) {
        self.dropped();
        self.unheard(mode);
    }

    /// Events are missing, and maybe answers to touches: who has asked asks again.
    pub(super) fn dropped(&mut self) {
        self.missed();
        self.forget_touches();
    }

    /// No canary was heard when one should have been. Whoever is late hears the next one in its turn, and
    /// has missed nothing; but if that takes too long, nothing will ever be proven. Of several servers, one may be replaced
    /// in less time than that.
    pub(super) fn silent(&mut self) {
        if self.peers.is_some() {
            self.lost();
        }
        self.runtime.learn(&self.node, |known| known.anchored = false);
        self.unheard(EventMode::Blind);
    }

    fn unheard(&mut self, mode: EventMode) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SILENT || self.deaf {
            self.lost();
            self.runtime.learn(&self.node, |known| {
                known.mode = mode;
                known.can_enrol = true;
            });
        }
    }

    /// A canary was heard after a gap, and gives names to what was heard before it. The keys are read together
    /// with the time of the anchor: an expiry that was announced before the answer has been noted by then, so
    /// of a key that is gone nothing more will be heard of what was read before.
    pub(super) fn name_unsure(&mut self, canary: u64) {
        let count = self.held.name(canary);
        if count > 0 {
            warn_of(count);
        }
        // Where there are several servers, they are read once this one is believed.
        if self.peers.is_none() {
            self.read_unsure();
        } else if !self.held.is_confirmed() {
            self.asked(Request::Anchor(Vec::new()));
        }
    }

    /// Has the keys of the last gap read, if they have their name; and the time in any case.
    pub(super) fn read_unsure(&mut self) {
        let first = self.held.next_to_read(Capture::default().keys_in_touch());
        self.asked(Request::Anchor(first));
        self.read_more_unsure();
    }

    /// A few touches at a time: each takes its keys, what is sent and what is answered.
    fn read_more_unsure(&mut self) {
        while self.on_their_way(|request| matches!(request, Request::Anchor(_))) < AT_ONCE {
            let keys = self.held.next_to_read(Capture::default().keys_in_touch());
            if keys.is_empty() {
                break;
            }
            self.asked(Request::Anchor(keys));
        }
    }

    /// A canary was heard that this listener does not believe. Others may, and name by it what all have heard: so
    /// what was heard before it has its name now, and waits for no other.
    pub(super) fn name_by_hearsay(&mut self, canary: u64) {
        let count = self.held.name(canary);
        if count > 0 {
            warn_of(count);
            self.held.tear(false);
        }
    }

    /// Keys that were heard in a gap were read, or could not be.
    pub(super) async fn note_unsure(&mut self, keys: Vec<Bytes>, answer: Option<Answer>, sent: Sent) {
        let Some(canary) = self.held.canary() else { return };
        let mut found = answer.unwrap_or_default().1.into_iter();
        for key in keys {
            let (found, partition) = (found.next(), self.runtime.route(&key));
            let gone =
                found.filter(|found| found.life == Life::Gone).zip(partition).map(|(found, partition)| {
                    let (at, stamp) = (self.stream.place(&key), found.stamp);
                    FoundGone { at, stamp, asked: self.asked_at(partition, sent) }
                });
            if let Some(times) = self.held.remove(&key) {
                self.fire_unsure(key, times, Some(canary), gone).await;
            }
        }
        self.read_more_unsure();
    }

    /// What was heard in gaps before the last waits for nothing, if its server is believed.
    pub(super) async fn fire_torn(&mut self) {
        if self.peers.is_some() && !self.is_trusted() {
            return;
        }
        for Batch { keys, canary } in self.held.take_torn() {
            if canary.is_none() && !keys.is_empty() {
                warn_of(keys.len());
            }
            for (key, times) in keys {
                self.fire_unsure(key, times, canary, None).await;
            }
        }
    }

    async fn fire_unsure(&self, key: Bytes, times: u32, canary: Option<u64>, gone: Option<FoundGone>) {
        let Some(partition) = self.runtime.route(&key) else { return };
        let node = self.stream.node();
        for back in 1..=times {
            self.topic(partition).attached.ambiguous.add(1);
            let (identity, arming) = match canary {
                Some(canary) => {
                    let arming = identity(&key, Position { node, canary, count: back }, true);
                    (Identity::Gap { node, canary, back, gone }, arming)
                }
                None => (Identity::Unknown(node), ArmingId::random()),
            };
            let note = Note { key: key.clone(), identity, arming };
            self.write(partition, Write::Note(note), Taken::default()).await;
        }
    }

    /// A key is gone that was heard to expire in a gap. The note of that is to come, and ends its watch; but
    /// where no canary comes, that is now.
    pub(super) async fn end_unsure(
        &mut self,
        partition: usize,
        watch: Watch,
        stamp: ServerTime,
        room: Taken,
    ) {
        if !self.node.known().mode.hears_nothing() || !self.held.take_one(&watch.key) {
            return;
        }
        self.topic(partition).attached.ambiguous.add(1);
        let deed = Deed::Fire { arming: ArmingId::random(), flags: Expiry::Ambiguous.flags() };
        let at = self.stream.place(&watch.key);
        self.judge(partition, Judged { watch, at, stamp, before: None, deed }, room).await;
    }
}

fn warn_of(count: usize) {
    warn!(count, "keys were heard to expire in a gap: their handlers may run twice");
}
