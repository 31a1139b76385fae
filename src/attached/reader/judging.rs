//! What follows from what a touch has found: enrolments and verdicts.

use std::mem;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::attached::decision::{KeyState, Verdict, decide};
use crate::attached::reader::{DELETED, StreamReader, Unproven};
use crate::attached::request::{Look, Read, Request};
use crate::attached::room::Taken;
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::escape::Escaped;
use crate::events::Answer;
use crate::id::ArmingId;
use crate::log::debug;
use crate::policy::{Recovered, Vanished};
use crate::time::ServerTime;
use crate::wire::{Deed, Enrolment, Found, Judged, Life, Watch};

impl StreamReader {
    /// Has those keys read that may have to be enrolled: all but those that live longer than the index knows, and are
    /// looked at in time. What was glanced at has no position, so nothing else follows from it.
    pub(super) async fn glanced(&mut self, mut read: Read, (stamp, found): Answer, sent: u64) {
        let mut lives = found.into_iter().map(|one| one.life);
        read.keys.retain(|key| match lives.next() {
            Some(Life::Until(deadline)) if !self.stream.heard_since(key, sent) => {
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
    pub(super) async fn enrol(&mut self, read: Read, (stamp, found): Answer, sent: u64) {
        let Read { partition, keys, capture, tries, prompted, done, room } = read;
        let mut again = Vec::new();
        for (key, Found { life, copy }) in keys.into_iter().zip(found) {
            // What was read may be of the expiry cycle before or after what was heard.
            if self.stream.heard_since(&key, sent) {
                again.push(key);
                continue;
            }
            match life {
                // It lives longer than the index knows, and is looked at in time.
                Life::Until(deadline)
                    if prompted && copy.is_empty() && self.deadlines.covers(&key, deadline, stamp) => {}
                Life::Until(deadline) => {
                    self.remember(partition, key, deadline, stamp, copy, room.clone()).await;
                }
                Life::Lasting if prompted => {
                    self.remember(partition, key, 0, stamp, copy, room.clone()).await;
                }
                Life::Gone if prompted && self.deleted.len() < DELETED => {
                    if let Some(at) = self.stream.deleted_at(&key) {
                        self.deleted.push((
                            partition,
                            Enrolment { key, deadline: 0, at, stamp, asked: ServerTime::default(), copy },
                        ));
                    }
                }
                Life::Lasting | Life::Gone => {}
            }
        }
        if let Some(done) = done {
            self.write(partition, Write::Done(done), Taken::default()).await;
        }
        if !again.is_empty() && tries > 0 {
            let read = Read { tries: tries - 1, prompted, room, ..Read::of(partition, again, capture) };
            self.asked(Request::Read(read));
        }
    }

    /// Has a deadline remembered that was read just now; 0: there is none.
    async fn remember(
        &self,
        partition: usize,
        key: Bytes,
        deadline: u64,
        stamp: ServerTime,
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
        let read = Enrolment { key, deadline, at, stamp, asked: ServerTime::default(), copy };
        self.write(partition, Write::Enrol(read, pending), room).await;
    }

    /// Judges keys that were looked at for their deadlines.
    pub(super) async fn look(&mut self, look: Look, answer: Answer, sent: u64) {
        let Look { partition, watches, room, .. } = look;
        let ((stamp, found), touched) = (answer, self.stream.number);
        for (watch, Found { life, copy }) in watches.into_iter().zip(found) {
            let verdict = decide(touching(life, &watch, stamp), self.stream.says(&watch, touched));
            // What was read may be of the expiry cycle before or after what was heard: then, look again.
            let fresh = !self.stream.heard_since(&watch.key, sent);
            let early = stamp.ms() < watch.deadline;
            match (verdict, life) {
                (Verdict::Unproven, _) => {
                    self.unproven.push(Unproven { partition, watch, stamp, touched, room: room.clone() });
                }
                (Verdict::Extended, Life::Until(deadline)) if fresh => {
                    self.topic(partition).attached.extended.add(1);
                    self.remember(partition, watch.key, deadline, stamp, copy, room.clone()).await;
                }
                // The value was read once more, shortly before the deadline.
                (Verdict::NotYet, Life::Until(deadline)) if fresh && early && !copy.is_empty() => {
                    self.remember(partition, watch.key, deadline, stamp, copy, room.clone()).await;
                }
                // It was heard, if not in its position: one expiry fires once.
                (Verdict::Recovered, _) if self.unsure.has(&watch.key) => {
                    self.end_unsure(partition, watch, stamp, room.clone()).await;
                }
                (verdict, _) => self.obey(partition, watch, verdict, stamp, room.clone()).await,
            }
        }
    }

    /// Does to the watch what its verdict says.
    async fn obey(&self, partition: usize, watch: Watch, verdict: Verdict, stamp: ServerTime, room: Taken) {
        let topic = self.topic(partition);
        let fire = |expiry: Expiry| Deed::Fire { arming: ArmingId::random(), flags: expiry.flags() };
        let (counter, deed) = match verdict {
            // The note of it ends the watch.
            Verdict::Lapsed => return,
            Verdict::NotYet | Verdict::Extended | Verdict::Unproven => (None, again(&watch, stamp)),
            Verdict::Persisted => (Some(&topic.attached.persisted), Deed::Forget),
            Verdict::Deleted => (Some(&topic.attached.deleted), Deed::Forget),
            Verdict::Vanished if topic.policy().vanished == Vanished::Fire => {
                (Some(&topic.attached.vanished), fire(Expiry::Vanished))
            }
            Verdict::Vanished => (Some(&topic.attached.vanished), Deed::Forget),
            Verdict::Recovered if topic.policy().recovered == Recovered::Ignore => {
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
        let at = self.stream.place(&watch.key);
        self.write(partition, Write::Judge(Judged { watch, at, stamp, before: None, deed }), room).await;
    }

    /// Judges again what nothing was proven of.
    pub(super) async fn judge_unproven(&mut self) {
        for one in mem::take(&mut self.unproven) {
            match decide(KeyState::Gone, self.stream.says(&one.watch, one.touched)) {
                Verdict::Unproven => self.unproven.push(one),
                Verdict::Recovered if self.unsure.has(&one.watch.key) => {}
                verdict => self.obey(one.partition, one.watch, verdict, one.stamp, one.room).await,
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
}

fn touching(life: Life, watch: &Watch, now: ServerTime) -> KeyState {
    match life {
        Life::Until(deadline) if deadline == watch.deadline => KeyState::SameDeadline,
        Life::Until(_) => KeyState::OtherDeadline,
        Life::Lasting => KeyState::NoDeadline,
        Life::Gone if now.ms() < watch.deadline => KeyState::GoneEarly,
        Life::Gone => KeyState::Gone,
    }
}

/// To be looked at again: at its deadline, or soon, the later the longer it is overdue.
fn again(watch: &Watch, stamp: ServerTime) -> Deed {
    let now = stamp.ms();
    let overdue = now.saturating_sub(watch.deadline);
    Deed::Again { at: now.max(watch.deadline) + (overdue / 4).clamp(2, 1000) }
}
