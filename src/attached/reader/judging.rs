//! What follows from what a touch has found: enrolments and verdicts.

use std::collections::HashMap;
use std::mem;

use bytes::Bytes;
use tracing::debug;

use crate::attached::decision::{KeyState, Verdict, decide};
use crate::attached::reader::{DeletedKey, PROMPTED, Read, Request, StreamReader, Unproven};
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::escape::Escaped;
use crate::id::ArmingId;
use crate::policy::Vanished;
use crate::time::ServerTime;
use crate::wire::{Deed, Enrolment, Found, Judged, Life, Position, Watch};

impl StreamReader {
    /// Enrols what has a deadline. Of a key that was heard to change it is also written down that it has none.
    pub(crate) async fn enrol(
        &mut self,
        read: Read,
        found: Vec<Found>,
        (stamp, sent): (ServerTime, u64),
        prompted: bool,
    ) {
        let Read { partition, keys, capture, tries, done } = read;
        let (mut enrolments, mut again) = (Vec::new(), Vec::new());
        for (key, Found { life, copy }) in keys.into_iter().zip(found) {
            // What was read may be of the expiry cycle before or after what was heard.
            if self.stream.heard_since(&key, sent) {
                again.push(key);
                continue;
            }
            let at = self.stream.place(&key);
            let (deadline, at) = match life {
                Life::Until(deadline) => (deadline, at),
                Life::Lasting if prompted => (0, at),
                Life::Gone if prompted && self.deleted.len() < PROMPTED => {
                    let deleted = self.stream.deleted_at(&key);
                    self.deleted.extend(deleted.map(|at| DeletedKey { partition, key, at, stamp }));
                    continue;
                }
                Life::Lasting | Life::Gone => continue,
            };
            enrolments.push(Enrolment { key, deadline, at, stamp, copy });
        }
        if !enrolments.is_empty() {
            self.write(partition, Write::Enrol(enrolments, done)).await;
        } else if let Some(done) = done {
            let _ = done.send(());
        }
        if !again.is_empty() && tries > 0 {
            self.asked(Request::Read(Read { partition, keys: again, capture, tries: tries - 1, done: None }));
        }
    }

    /// Judges keys that were looked at for their deadlines.
    pub(crate) async fn look(
        &mut self,
        partition: usize,
        watches: Vec<Watch>,
        found: Vec<Found>,
        (stamp, sent): (ServerTime, u64),
    ) {
        let mut judgements = Vec::new();
        let mut enrolments = Vec::new();
        for (watch, Found { life, copy }) in watches.into_iter().zip(found) {
            let at = self.stream.place(&watch.key);
            let touch = touching(life, &watch, stamp);
            let said = self.stream.says(&watch, self.stream.number);
            let early = stamp.ms() < watch.deadline;
            match (decide(touch, said), life) {
                (Verdict::Unproven, _) => {
                    self.unproven.push(Unproven { partition, watch, stamp, touched: self.stream.number });
                }
                (Verdict::Extended, _) | (Verdict::NotYet, Life::Until(_))
                    if self.stream.heard_since(&watch.key, sent) =>
                {
                    judgements.push(again(watch, at, stamp));
                }
                (Verdict::Extended, Life::Until(deadline)) => {
                    self.stats(partition).extended.add(1);
                    enrolments.push(Enrolment { key: watch.key, deadline, at, stamp, copy });
                }
                // The value was read once more, shortly before the deadline.
                (Verdict::NotYet, Life::Until(deadline)) if early && !copy.is_empty() => {
                    enrolments.push(Enrolment { key: watch.key, deadline, at, stamp, copy });
                }
                // It was heard, if not in its position: one expiry fires once.
                (Verdict::Recovered, _) if self.take_ambiguous(&watch.key) => {
                    self.note_ambiguous(partition, watch.key).await;
                }
                (verdict, _) => judgements.extend(self.obey(partition, watch, at, verdict, stamp)),
            }
        }
        if !enrolments.is_empty() {
            self.write(partition, Write::Enrol(enrolments, None)).await;
        }
        if !judgements.is_empty() {
            self.write(partition, Write::Judge(judgements)).await;
        }
    }

    /// What is to be done to the watch by a verdict.
    fn obey(
        &self,
        partition: usize,
        watch: Watch,
        at: Position,
        verdict: Verdict,
        stamp: ServerTime,
    ) -> Option<Judged> {
        let stats = self.stats(partition);
        let fires = self.policy(partition).vanished == Vanished::Fire;
        let expiry = match verdict {
            // The note of it ends the watch.
            Verdict::Lapsed => return None,
            Verdict::NotYet | Verdict::Extended | Verdict::Unproven => {
                return Some(again(watch, at, stamp));
            }
            Verdict::Persisted => {
                stats.persisted.add(1);
                None
            }
            Verdict::Deleted => {
                stats.deleted.add(1);
                None
            }
            Verdict::Vanished => {
                stats.vanished.add(1);
                fires.then_some(Expiry::Vanished)
            }
            Verdict::Recovered => {
                stats.recovered.add(1);
                debug!(key = %Escaped(&watch.key), "gone, and something may have been missed: recovered");
                Some(Expiry::Recovered)
            }
        };
        let deed = match expiry {
            Some(expiry) => Deed::Fire { arming: ArmingId::random(), flags: expiry.flags() },
            None => Deed::Forget,
        };
        Some(Judged { watch, at, stamp, deed })
    }

    /// Judges again what nothing was proven of.
    pub(crate) async fn judge_unproven(&mut self) {
        let mut ready: HashMap<usize, Vec<Judged>> = HashMap::new();
        for one in mem::take(&mut self.unproven) {
            let said = self.stream.says(&one.watch, one.touched);
            match decide(KeyState::Gone, said) {
                Verdict::Unproven => self.unproven.push(one),
                verdict => {
                    let at = self.stream.place(&one.watch.key);
                    let judgement = self.obey(one.partition, one.watch, at, verdict, one.stamp);
                    ready.entry(one.partition).or_default().extend(judgement);
                }
            }
        }
        for (partition, judgements) in ready {
            self.write(partition, Write::Judge(judgements)).await;
        }
    }

    /// Nothing was missed up to this canary, so the deletion was the last that has happened to the key.
    pub(crate) async fn forget_deleted(&mut self) {
        let mut ready: HashMap<usize, Vec<Enrolment>> = HashMap::new();
        for DeletedKey { partition, key, at, stamp } in mem::take(&mut self.deleted) {
            if self.stream.deleted_at(&key) == Some(at) {
                let none = Enrolment { key, deadline: 0, at, stamp, copy: Bytes::new() };
                ready.entry(partition).or_default().push(none);
            }
        }
        for (partition, forgotten) in ready {
            self.stats(partition).deleted.add(forgotten.len());
            self.write(partition, Write::Enrol(forgotten, None)).await;
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
fn again(watch: Watch, at: Position, stamp: ServerTime) -> Judged {
    let now = stamp.ms();
    let overdue = now.saturating_sub(watch.deadline);
    let when = now.max(watch.deadline) + (overdue / 4).clamp(2, 1000);
    Judged { watch, at, stamp, deed: Deed::Again { at: when } }
}
