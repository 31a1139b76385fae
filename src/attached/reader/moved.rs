//! Keys that another server had when their deadlines were read: judged by what both have said.

use crate::attached::decision::{KeyState, StreamSays as Said, Verdict, decide};
use crate::attached::reader::judging::touching;
use crate::attached::reader::{StreamReader, Unproven};
use crate::attached::request::{Look, Moved, MovedKey, Request, Sent, There};
use crate::attached::room::Taken;
use crate::time::ServerTime;
use crate::wire::{Found, Judged, Life, NodeId, Watch};

impl StreamReader {
    /// Asks the servers that had these keys what was heard of them there. Where one is gone, nobody can say.
    pub(super) async fn recall(
        &mut self,
        partition: usize,
        keys: Vec<(Watch, Found)>,
        sent: Sent,
        room: Taken,
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
            let moved = Moved { partition, keys, sent, touched, room: room.clone(), back: back.clone() };
            match self.readers.of_node(node) {
                // If it has no room, the keys are looked at again.
                Some(former) => _ = former.try_send(Request::Recall(moved)),
                None => self.judge_moved(moved).await,
            }
        }
    }

    /// Says what was heard here of keys that have moved on. All that was published before has been read.
    pub(super) fn recalled(&self, mut moved: Moved, is_answered: bool) {
        for MovedKey { watch, there, .. } in moved.keys.iter_mut().filter(|_| is_answered) {
            let at = self.stream.is_anchored().then(|| self.stream.place(&watch.key));
            let whole = self.is_trusted() && self.stream.is_whole_since(watch);
            // An expiry that was heard in a gap is not noted yet.
            let expired = self.stream.expired_since(watch) || self.held.has(&watch.key);
            *there = Some(There { expired, whole, at });
        }
        let back = moved.back.clone();
        // As above.
        let _ = back.try_send(Request::Judge(moved));
    }

    /// Judges them. If a gap has begun meanwhile, they are looked at again.
    pub(super) async fn judge_moved(&mut self, moved: Moved) {
        if !self.has_positions() {
            return;
        }
        let Moved { partition, keys, sent, touched, room, .. } = moved;
        for MovedKey { watch, found: Found { stamp, life, copy }, there } in keys {
            let state = match touching(life, &watch, stamp) {
                // Its deadline is the same, and its place is another.
                Some(KeyState::SameDeadline) => KeyState::OtherDeadline,
                Some(state) => state,
                None => continue,
            };
            let fresh = !self.stream.heard_since(&watch.key, sent.heard);
            match (decide(state, self.say_of_moved(&watch, there, touched)), life) {
                (Verdict::Unproven, _) => {
                    let room = room.clone();
                    self.unproven.push(Unproven {
                        partition,
                        watch,
                        stamp,
                        touched,
                        there: Some(there),
                        room,
                    });
                }
                (Verdict::Extended, Life::Until(deadline)) if fresh => {
                    self.topic(partition).attached.extended.add(1);
                    self.remember(partition, watch.key, deadline, (stamp, sent), copy, room.clone()).await;
                }
                (Verdict::Recovered, _) if self.held.has(&watch.key) => {
                    self.end_unsure(partition, watch, stamp, room.clone()).await;
                }
                (verdict, _) => {
                    self.obey_of_moved(partition, watch, verdict, stamp, there, room.clone()).await;
                }
            }
        }
    }

    /// What the streams of both servers say. Of deletions nothing can be told: a move makes one, too.
    pub(super) fn say_of_moved(&self, watch: &Watch, there: Option<There>, touched: u64) -> Said {
        let There { expired, whole, .. } = there.unwrap_or(There { expired: false, whole: false, at: None });
        if watch.answered || expired {
            return Said::Expired;
        }
        if !whole || !self.is_trusted() {
            return Said::Broken;
        }
        if self.stream.is_untimed() {
            return Said::NothingYet;
        }
        if !self.stream.is_anchored_before(watch.deadline) {
            return Said::Broken;
        }
        if self.stream.is_beyond(touched) { Said::Nothing } else { Said::NothingYet }
    }

    pub(super) async fn obey_of_moved(
        &self,
        partition: usize,
        watch: Watch,
        verdict: Verdict,
        stamp: ServerTime,
        there: Option<There>,
        room: Taken,
    ) {
        let before = there.and_then(|there| there.at);
        if let Some(deed) = self.deed_of(partition, &watch, verdict, stamp) {
            let at = self.stream.place(&watch.key);
            self.judge(partition, Judged { at, watch, stamp, before, deed }, room).await;
        }
    }

    /// Sends a look at keys that are elsewhere by now to where they are.
    pub(super) fn look_elsewhere(&self, look: Look) {
        let Look { partition, watches, capture, horizon, room } = look;
        for (owner, watches) in self.readers.share_out(watches, |watch| &watch.key) {
            // The map may be as old as it was: then it is looked at again in a while.
            if !owner.same_channel(&self.own_requests) {
                let (capture, room) = (capture.clone(), room.clone());
                let _ = owner.try_send(Request::Look(Look { partition, watches, capture, horizon, room }));
            }
        }
    }
}
