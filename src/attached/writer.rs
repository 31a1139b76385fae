//! Writes down what the reader has found: notes, enrolments and verdicts of one partition, in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::attached::reader::{Read, Request};
use crate::connection::retry;
use crate::error::{Error, Result};
use crate::lapse::LapseSource;
use crate::log_throttle::LogThrottle;
use crate::policy::{Capture, Policy};
use crate::runtime::{EventMode, Partition, StreamState};
use crate::wire::{Deed, Enrolled, Enrolment, Judged, MAX_BATCH, Next, Note, Noted};

/// Writes that may wait. Beyond, the reader waits, and then the subscription: a drop there is a gap.
pub(crate) const WAITING: usize = 65_536;
/// After so long keys are read again that could not be enrolled since no canary is heard.
const BLIND: Duration = Duration::from_secs(3);

/// Something to be written down.
#[derive(Debug)]
pub(crate) enum Write {
    /// An expiry was heard.
    Note(Note),
    /// Deadlines were read; told when they are remembered.
    Enrol(Vec<Enrolment>, Option<oneshot::Sender<()>>),
    /// Looks have led to verdicts.
    Judge(Vec<Judged>),
}

/// The writer of one partition.
pub(crate) struct Writer {
    index: usize,
    partition: Arc<Partition>,
    writes: mpsc::Receiver<Write>,
    requests: mpsc::Sender<Request>,
    stream_state: Arc<StreamState>,
    full: bool,
    trouble: LogThrottle,
}

impl Writer {
    pub(crate) fn new(
        index: usize,
        partition: Arc<Partition>,
        writes: mpsc::Receiver<Write>,
        requests: mpsc::Sender<Request>,
        stream_state: Arc<StreamState>,
    ) -> Self {
        Self {
            index,
            partition,
            writes,
            requests,
            stream_state,
            full: false,
            trouble: LogThrottle::default(),
        }
    }

    /// Until nobody has writes any more.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.writes.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let mut notes = Vec::new();
            for write in batch.drain(..) {
                match write {
                    Write::Note(note) => notes.push(note),
                    Write::Enrol(read, done) => {
                        self.note(std::mem::take(&mut notes)).await;
                        self.enrol(read).await;
                        done.map(|done| done.send(()));
                    }
                    Write::Judge(all) => {
                        self.note(std::mem::take(&mut notes)).await;
                        self.judge(all).await;
                    }
                }
            }
            self.note(notes).await;
        }
    }

    /// Insisted on without end: a note that is left out would make all later ones wrong.
    async fn note(&self, notes: Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        let topic = &self.partition.topic;
        let throttle = LogThrottle::default();
        let heals = |reason: &Error, _| {
            if throttle.should_log(reason) {
                warn!(topic = %topic.config.name, error = %reason, "expiries cannot be noted; trying again");
            }
            true
        };
        let note = |_| self.partition.store.note(&self.partition.names, topic.policy(), &notes);
        if let Ok(noted) = retry(None, Error::maybe_done, heals, note).await {
            self.count(&noted);
        }
    }

    fn count(&self, noted: &[Noted]) {
        let stats = &self.partition.topic.attached;
        let mut stale = 0;
        for one in noted {
            match one {
                Noted::Known => stats.known.add(1),
                Noted::Lapse => stats.noted.add(1),
                Noted::Recovered => stats.recovered_before.add(1),
                Noted::Ignored => stats.ignored.add(1),
                Noted::Stale => stale += 1,
                Noted::Returned => stats.returned.add(1),
                Noted::Superseding => {
                    stats.noted.add(1);
                    self.partition.topic.stats.superseded.add(1);
                }
            }
        }
        if noted.iter().any(|one| matches!(one, Noted::Lapse | Noted::Superseding)) {
            self.wake();
        }
        if stale > 0 {
            stats.stale.add(stale);
            error!(topic = %self.partition.topic.config.name, count = stale, "expiries were heard too late to be told from those that have run: treated as a gap");
            let _ = self.requests.try_send(Request::Late);
        }
    }

    async fn enrol(&mut self, read: Vec<Enrolment>) {
        for chunk in read.chunks(MAX_BATCH) {
            match self.partition.store.enrol(&self.partition.names, self.policy(), chunk).await {
                Ok(enrolled) => {
                    self.trouble = LogThrottle::default();
                    self.enrolled(chunk, enrolled);
                }
                Err(reason) => self.not_written(&reason, "keys not enrolled: the next scan finds them"),
            }
        }
    }

    fn enrolled(&mut self, read: &[Enrolment], Next { next, value }: Next<Vec<Enrolled>>) {
        self.look_at(next);
        let stats = &self.partition.topic.attached;
        let with = |what: Enrolled| -> Vec<&Enrolment> {
            let those = read.iter().zip(&value).filter(|(_, reply)| **reply == what);
            those.map(|(one, _)| one).collect()
        };
        let (stale, wanted) = (with(Enrolled::Stale), with(Enrolled::Wanted));
        let (blind, stale): (Vec<_>, Vec<_>) = stale.into_iter().partition(|one| one.at.canary == 0);
        let full = value.iter().filter(|reply| **reply == Enrolled::Full).count();
        let new = value.iter().filter(|reply| **reply == Enrolled::New).count();
        stats.enrolled.add(new + wanted.len());
        stats.no_room.add(full);
        if full > 0 && !self.full {
            error!(
                topic = %self.partition.topic.config.name, cap = self.policy().cap,
                "as many keys are enrolled as the topic may remember: others fire only if they are heard to expire"
            );
        }
        self.full = full > 0 || self.full && new == 0;
        let capture = self.policy().capture;
        self.ask(&stale, capture);
        self.ask(&wanted, capture);
        self.ask_later(&blind, capture);
    }

    /// What finds no room is found by the next scan.
    fn ask(&self, those: &[&Enrolment], capture: Capture) {
        if let Some(ask) = self.read_again(those, capture) {
            let _ = self.requests.try_send(ask);
        }
    }

    /// Where no canary is heard, what was heard shortly before stands for a while, however often the keys
    /// are read.
    fn ask_later(&self, those: &[&Enrolment], capture: Capture) {
        if let Some(ask) = self.read_again(those, capture) {
            let requests = self.requests.downgrade();
            tokio::spawn(async move {
                tokio::time::sleep(BLIND).await;
                requests.upgrade().map(|requests| requests.try_send(ask));
            });
        }
    }

    fn read_again(&self, those: &[&Enrolment], capture: Capture) -> Option<Request> {
        let keys: Vec<_> = those.iter().map(|one| one.key.clone()).collect();
        (!keys.is_empty()).then(|| Request::Read(Read::of(self.index, keys, capture)))
    }

    /// Says why, once for each reason in a row.
    fn not_written(&mut self, reason: &Error, what: &str) {
        self.partition.topic.attached.write_errors.add(1);
        if self.trouble.should_log(reason) {
            warn!(topic = %self.partition.topic.config.name, error = %reason, "{what}");
        }
    }

    async fn judge(&mut self, all: Vec<Judged>) {
        for chunk in all.chunks(MAX_BATCH) {
            match self.judge_chunk(chunk).await {
                Ok(judged) => {
                    self.look_at(judged.next);
                    if chunk.iter().any(|one| matches!(one.deed, Deed::Fire { .. })) {
                        self.wake();
                    }
                }
                // The checks come back by themselves.
                Err(reason) => {
                    self.not_written(&reason, "verdicts not written: the keys are looked at again");
                }
            }
        }
    }

    async fn judge_chunk(&self, chunk: &[Judged]) -> Result<Next<Vec<bool>>> {
        self.partition.store.judge(&self.partition.names, self.policy(), chunk).await
    }

    /// The script has sent a wake-up; where nothing is heard, that may not be heard either.
    fn wake(&self) {
        if self.stream_state.mode() == EventMode::Blind {
            self.partition.wakeup.look(Instant::now(), LapseSource::Timer);
        }
    }

    fn look_at(&self, next: Option<u64>) {
        if let Some(ms) = next {
            self.partition.checks.head(ms);
        }
    }

    fn policy(&self) -> &Policy {
        self.partition.topic.policy()
    }
}
