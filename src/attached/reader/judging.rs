//! What follows from what a touch has found: enrolments and verdicts. Keys that another server had when their deadlines
//! were read are judged by what both have said.

use std::mem;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::decision::{KeyState, StreamSays as Said, Verdict, decide};
use crate::attached::reader::{DELETED, Looked, StreamReader};
use crate::attached::request::{Look, Moved, MovedKey, Read, Request, Sent, Taken, There};
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::escape::Escaped;
use crate::events::Answer;
use crate::id::ArmingId;
use crate::log::debug;
use crate::policy::Treatment;
use crate::time::{ServerTime, ms_ceil};
use crate::wire::{Deed, Enrolment, Found, Judged, Life, NodeId, Watch};

/// What was heard so long ago and is still remembered: its note was lost with a server that was replaced, or is late, and
/// then finds that the key was recovered.
const UNNOTED: Duration = Duration::from_secs(5);

impl StreamReader {
    /// Has those keys read that may have to be enrolled: all but those that live longer than the index knows, and are
    /// looked at in time. What was glanced at has no position, so nothing else follows from it.
    pub(super) async fn glanced(&mut self, mut read: Read, (stamp, found): Answer, sent: Sent) {
        let mut lives = found.into_iter().map(|one| one.life);
        read.keys.retain(|key| match lives.next() {
            Some(Life::Until(deadline)) if !self.stream.heard_since(key, sent.heard) => {
                !self.deadlines.covers(key, deadline, stamp)
            }
            _ => true,
        });
        if !read.keys.is_empty() {
            self.asked(Request::Read(read));
        } else if let Some(done) = read.done {
            self.write(read.partition, Write::Done(done), Taken::default()).await;
        }
    }

    /// Enrols what has a deadline. Of a key that was heard to change it is also written down that it has none.
    pub(super) async fn enrol(&mut self, read: Read, (_, found): Answer, sent: Sent) {
        let Read { partition, keys, capture, tries, prompted, done, room } = read;
        let (mut again, mut elsewhere) = (Vec::new(), Vec::new());
        for (key, Found { stamp, life, copy }) in keys.into_iter().zip(found) {
            // What was read may be of the expiry cycle before or after what was heard.
            if self.stream.heard_since(&key, sent.heard) {
                again.push(key);
                continue;
            }
            match life {
                // It lives longer than the index knows, and is looked at in time.
                Life::Until(deadline)
                    if prompted && copy.is_empty() && self.deadlines.covers(&key, deadline, stamp) => {}
                Life::Until(deadline) => {
                    self.remember(partition, key, deadline, (stamp, sent), copy, room.clone()).await;
                }
                Life::Lasting if prompted => {
                    self.remember(partition, key, 0, (stamp, sent), copy, room.clone()).await;
                }
                Life::Elsewhere => elsewhere.push(key),
                Life::Gone if prompted && self.deleted.len() < DELETED => {
                    if let Some(at) = self.stream.deleted_at(&key) {
                        let asked = self.asked_at(partition, sent);
                        self.deleted
                            .push((partition, Enrolment { key, deadline: 0, at, stamp, asked, copy }));
                    }
                }
                Life::Lasting | Life::Gone => {}
            }
        }
        if let Some(done) = done {
            self.write(partition, Write::Done(done), Taken::default()).await;
        }
        let read = |keys| Read {
            tries: tries - 1,
            prompted,
            room: room.clone(),
            ..Read::of(partition, keys, capture.clone())
        };
        if !again.is_empty() && tries > 0 {
            self.asked(Request::Read(read(again)));
        }
        if !elsewhere.is_empty() && tries > 0 {
            for (owner, keys) in self.readers.share_out(elsewhere, |key| key) {
                let _ = owner.try_send(Request::Read(read(keys)));
            }
        }
    }

    /// Has a deadline remembered that was read just now; 0: there is none.
    pub(super) async fn remember(
        &self,
        partition: usize,
        key: Bytes,
        deadline: u64,
        (stamp, sent): (ServerTime, Sent),
        copy: Bytes,
        room: Taken,
    ) {
        let at = self.stream.place(&key);
        // Whoever enrols for the topic hears what is written, too.
        let enrols = self.topic(partition).scanning.load(Ordering::Relaxed);
        let pending = match deadline {
            1.. if enrols && at.canary > 0 => self.deadlines.pend(&key, deadline, stamp),
            _ => {
                self.deadlines.forget(&key);
                None
            }
        };
        let asked = self.asked_at(partition, sent);
        let read = Enrolment { key, deadline, at, stamp, asked, copy };
        self.write(partition, Write::Enrol(read, pending), room).await;
    }

    /// Judges keys that were looked at for their deadlines.
    pub(super) async fn look(&mut self, look: Look, (_, found): Answer, sent: Sent) {
        let Look { partition, watches, capture, horizon, room } = look;
        let (touched, mut moved, mut elsewhere) = (self.stream.number, Vec::new(), Vec::new());
        for (watch, found) in watches.into_iter().zip(found) {
            let Some(state) = touching(found.life, &watch, found.stamp) else {
                elsewhere.push(watch);
                continue;
            };
            if self.peers.is_some() && watch.at.node != self.stream.node() {
                moved.push((watch, found));
                continue;
            }
            let Found { stamp, life, copy } = found;
            let verdict = decide(state, self.stream.says(&watch, touched));
            let one = Looked { partition, watch, stamp, touched, there: None, room: room.clone() };
            self.conclude(one, verdict, (life, copy), sent).await;
        }
        self.look_elsewhere(Look { partition, watches: elsewhere, capture, horizon, room: room.clone() });
        if !moved.is_empty() {
            self.recall(partition, moved, sent, room).await;
        }
    }

    /// What follows from a verdict: the key is enrolled again, waits for a canary, or its watch gets what it deserves.
    async fn conclude(&mut self, one: Looked, verdict: Verdict, (life, copy): (Life, Bytes), sent: Sent) {
        // What was read may be of the expiry cycle before or after what was heard: then, look again.
        let fresh = !self.stream.heard_since(&one.watch.key, sent.heard);
        let early = one.stamp.ms() < one.watch.deadline;
        match (verdict, life) {
            (Verdict::Unproven, _) => self.unproven.push(one),
            (Verdict::Extended, Life::Until(deadline)) if fresh => {
                self.topic(one.partition).attached.extended.add(1);
                self.remember(one.partition, one.watch.key, deadline, (one.stamp, sent), copy, one.room)
                    .await;
            }
            // The value was read once more, shortly before the deadline.
            (Verdict::NotYet, Life::Until(deadline)) if fresh && early && !copy.is_empty() => {
                self.remember(one.partition, one.watch.key, deadline, (one.stamp, sent), copy, one.room)
                    .await;
            }
            // It was heard, if not in its position: one expiry fires once.
            (Verdict::Recovered, _) if self.held.has(&one.watch.key) => {
                self.end_unsure(one.partition, one.watch, one.stamp, one.room).await;
            }
            (verdict, _) => self.obey(one, verdict).await,
        }
    }

    /// Does to the watch what its verdict says.
    async fn obey(&self, one: Looked, verdict: Verdict) {
        let Looked { partition, watch, stamp, there, room, .. } = one;
        if let Some(deed) = self.deed_of(partition, &watch, verdict, stamp) {
            let at = self.stream.place(&watch.key);
            let before = there.flatten().and_then(|there| there.at);
            self.judge(partition, Judged { watch, at, stamp, before, deed }, room).await;
        }
    }

    /// When a server said this, by the clock that checks are due by: that of the partition. Where there is one server, it is
    /// the same; else two clocks are never compared.
    fn moment(&self, partition: usize, stamp: ServerTime) -> u64 {
        let clock = &self.runtime.partitions[partition].clock;
        let of_another = self.peers.as_ref().and_then(|_| clock.known());
        of_another.map_or(stamp, |_| clock.at_least(Instant::now())).ms()
    }

    /// Whether the server that keeps the watch can have been replaced since it had the note. Where there is one server, it
    /// keeps both, or neither.
    fn is_note_lost(&self, watch: &Watch, stamp: ServerTime) -> bool {
        self.peers.is_some() && stamp.ms() >= watch.deadline + ms_ceil(UNNOTED)
    }

    pub(super) async fn judge(&self, partition: usize, judged: Judged, room: Taken) {
        self.write(partition, Write::Judge(judged), room).await;
    }

    /// What its verdict does to a watch, if anything.
    pub(super) fn deed_of(
        &self,
        partition: usize,
        watch: &Watch,
        verdict: Verdict,
        stamp: ServerTime,
    ) -> Option<Deed> {
        let topic = self.topic(partition);
        let fire = |expiry: Expiry| Deed::Fire { arming: ArmingId::random(), flags: expiry.flags() };
        let (counter, deed) = match verdict {
            // The note of what another server has announced could not know whether that was all, and has left it.
            Verdict::Lapsed if watch.answered => (None, Deed::Forget),
            // Whatever the policy says of what nobody has heard. A note that comes yet finds the trace of this one.
            Verdict::Lapsed if self.is_note_lost(watch, stamp) => {
                debug!(key = %Escaped(&watch.key), "heard to expire, and the note of it was lost with a server: recovered");
                (Some(&topic.attached.recovered), fire(Expiry::Recovered))
            }
            // The note of it ends the watch.
            Verdict::Lapsed => return None,
            Verdict::NotYet | Verdict::Extended | Verdict::Unproven => {
                (None, Deed::Again { at: self.moment(partition, stamp) + pause(watch, stamp) })
            }
            Verdict::Persisted => (Some(&topic.attached.persisted), Deed::Forget),
            Verdict::Deleted => (Some(&topic.attached.deleted), Deed::Forget),
            Verdict::Vanished if topic.policy().topic.vanished == Treatment::Fire => {
                (Some(&topic.attached.vanished), fire(Expiry::Vanished))
            }
            Verdict::Vanished => (Some(&topic.attached.vanished), Deed::Forget),
            Verdict::Recovered if topic.policy().topic.recovered == Treatment::Ignore => {
                debug!(key = %Escaped(&watch.key), "gone, and something may have been missed: forgotten, as the topic asks");
                (Some(&topic.attached.not_recovered), Deed::Forget)
            }
            Verdict::Recovered => {
                debug!(key = %Escaped(&watch.key), "gone, and something may have been missed: recovered");
                (Some(&topic.attached.recovered), fire(Expiry::Recovered))
            }
        };
        if let Some(counter) = counter {
            counter.add(1);
        }
        Some(deed)
    }

    /// Judges again what nothing was proven of.
    pub(super) async fn judge_unproven(&mut self) {
        for one in mem::take(&mut self.unproven) {
            let says = match one.there {
                None => self.stream.says(&one.watch, one.touched),
                Some(there) => self.say_of_moved(&one.watch, there, one.touched),
            };
            match decide(KeyState::Gone, says) {
                Verdict::Unproven => self.unproven.push(one),
                Verdict::Recovered if self.held.has(&one.watch.key) => {}
                verdict => self.obey(one, verdict).await,
            }
        }
    }

    /// Nothing was missed up to this canary, so the deletion was the last that has happened to the key.
    pub(super) async fn forget_deleted(&mut self) {
        for (partition, forgotten) in mem::take(&mut self.deleted) {
            if self.stream.deleted_at(&forgotten.key) == Some(forgotten.at) {
                self.topic(partition).attached.deleted.add(1);
                self.write(partition, Write::Enrol(forgotten, None), Taken::default()).await;
            }
        }
    }

    /// Asks the servers that had these keys what was heard of them there. Where one is gone, nobody can say.
    async fn recall(&mut self, partition: usize, keys: Vec<(Watch, Found)>, sent: Sent, room: Taken) {
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
            let verdict = decide(state, self.say_of_moved(&watch, there, touched));
            let one = Looked { partition, watch, stamp, touched, there: Some(there), room: room.clone() };
            self.conclude(one, verdict, (life, copy), sent).await;
        }
    }

    /// What the streams of both servers say. Of deletions nothing can be told: a move makes one, too.
    fn say_of_moved(&self, watch: &Watch, there: Option<There>, touched: u64) -> Said {
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

    /// Sends a look at keys that are elsewhere by now to where they are.
    fn look_elsewhere(&self, look: Look) {
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

/// None where another server has to be asked.
fn touching(life: Life, watch: &Watch, now: ServerTime) -> Option<KeyState> {
    Some(match life {
        Life::Elsewhere => return None,
        Life::Until(deadline) if deadline == watch.deadline => KeyState::SameDeadline,
        Life::Until(_) => KeyState::OtherDeadline,
        Life::Lasting => KeyState::NoDeadline,
        Life::Gone if now.ms() < watch.deadline => KeyState::GoneEarly,
        Life::Gone => KeyState::Gone,
    })
}

/// After how many ms it is looked at again: at its deadline, or soon, the later the longer it is overdue.
fn pause(watch: &Watch, stamp: ServerTime) -> u64 {
    let (now, deadline) = (stamp.ms(), watch.deadline);
    deadline.saturating_sub(now) + (now.saturating_sub(deadline) / 4).clamp(2, 1000)
}
