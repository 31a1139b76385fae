//! Writes down what the reader has found: notes, enrolments and verdicts of one partition, in order.

use std::mem::{self, discriminant};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::attached::request::{Context, Read, Request};
use crate::connection::retry;
use crate::error::Error;
use crate::limits::fit;
use crate::log::{error, warn};
use crate::log_throttle::LogThrottle;
use crate::runtime::{EventMode, Partition};
use crate::source::LapseSource;
use crate::wire::{Deed, Enrolled, Enrolment, Judged, MAX_BATCH, Note, Noted};

/// Writes that may wait. Beyond, the reader waits, and what is heard meanwhile has its own bound: a drop is a gap.
pub(crate) const WAITING: usize = 65_536;
/// Deadlines are remembered in one call up to about so many bytes of values: what a touch brings.
const ENROL_BYTES: usize = 4 << 20;
/// After so long keys are read again that could not be enrolled since no canary is heard.
const BLIND: Duration = Duration::from_secs(3);

/// Something to be written down.
#[derive(Debug)]
pub(crate) enum Write {
    /// An expiry was heard.
    Note(Note),
    /// A deadline was read.
    Enrol(Enrolment),
    /// A look has led to a verdict.
    Judge(Judged),
    /// Somebody waits until all of that was written.
    Done(oneshot::Sender<()>),
}

/// The writer of one partition.
pub(crate) struct Writer {
    context: Context,
    writes: mpsc::Receiver<Write>,
    full: bool,
    trouble: LogThrottle,
}

impl Writer {
    pub(crate) fn new(context: Context, writes: mpsc::Receiver<Write>) -> Self {
        Self { context, writes, full: false, trouble: LogThrottle::default() }
    }

    /// Until nobody has writes any more. What is of one kind, and in a row, takes one call.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.writes.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let (mut notes, mut read, mut judged) = (Vec::new(), Vec::new(), Vec::new());
            let mut writes = batch.drain(..).peekable();
            while let Some(write) = writes.next() {
                let more = writes.peek().is_some_and(|next| discriminant(next) == discriminant(&write));
                match write {
                    Write::Note(note) => notes.push(note),
                    Write::Enrol(one) => read.push(one),
                    Write::Judge(one) => judged.push(one),
                    Write::Done(done) => _ = done.send(()),
                }
                if !more {
                    self.note(mem::take(&mut notes)).await;
                    self.enrol(mem::take(&mut read)).await;
                    self.judge(mem::take(&mut judged)).await;
                }
            }
        }
    }

    /// Insisted on without end: a note that is left out would make all later ones wrong.
    async fn note(&self, notes: Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let throttle = LogThrottle::default();
        let heals = |reason: &Error, _| {
            if throttle.should_log(reason) {
                warn!(topic = %topic.config.name, error = %reason, "expiries cannot be noted; trying again");
            }
            true
        };
        let note = |_| store.note(names, topic.policy(), &notes);
        if let Ok(replies) = retry(None, Error::maybe_done, heals, note).await {
            self.noted(&replies);
        }
    }

    fn noted(&self, replies: &[Noted]) {
        let topic = &self.context.partition.topic;
        let stats = &topic.attached;
        let count = |what| replies.iter().filter(|reply| **reply == what).count();
        let (superseding, stale) = (count(Noted::Superseding), count(Noted::Stale));
        let lapses = count(Noted::Lapse) + superseding;
        stats.noted.add(lapses);
        topic.stats.superseded.add(superseding);
        stats.known.add(count(Noted::Known));
        stats.recovered_before.add(count(Noted::Recovered));
        stats.ignored.add(count(Noted::Ignored));
        stats.returned.add(count(Noted::Returned));
        stats.stale.add(stale);
        if lapses > 0 {
            self.wake();
        }
        if stale > 0 {
            error!(topic = %topic.config.name, count = stale, "expiries were heard too late to be told from those that have run: treated as a gap");
            let _ = self.context.requests.try_send(Request::Late);
        }
    }

    async fn enrol(&mut self, read: Vec<Enrolment>) {
        let largest = read.iter().map(|one| one.copy.len()).max();
        for chunk in read.chunks(fit(ENROL_BYTES, MAX_BATCH, largest)) {
            let Partition { store, names, topic, .. } = &*self.context.partition;
            match store.enrol(names, topic.policy(), chunk).await {
                Ok((next, replies)) => {
                    self.trouble = LogThrottle::default();
                    self.look_at(next);
                    self.enrolled(chunk, &replies);
                }
                Err(reason) => self.not_written(&reason, "keys not enrolled: the next scan finds them"),
            }
        }
    }

    fn enrolled(&mut self, read: &[Enrolment], replies: &[Enrolled]) {
        let topic = &self.context.partition.topic;
        let count = |what| replies.iter().filter(|reply| **reply == what).count();
        let (new, full) = (count(Enrolled::New), count(Enrolled::Full));
        topic.attached.enrolled.add(new + count(Enrolled::Wanted));
        topic.attached.no_room.add(full);
        if full > 0 && !self.full {
            error!(
                topic = %topic.config.name, cap = topic.policy().cap,
                "as many keys are enrolled as the topic may remember: others fire only if they are heard to expire"
            );
        }
        self.full = full > 0 || self.full && new == 0;
        let (mut soon, mut later) = (Vec::new(), Vec::new());
        for (one, reply) in read.iter().zip(replies) {
            match reply {
                // Where no canary is heard, what was heard shortly before stands for a while, however often
                // the keys are read.
                Enrolled::Stale if one.at.canary == 0 => later.push(one.key.clone()),
                Enrolled::Stale | Enrolled::Wanted => soon.push(one.key.clone()),
                _ => {}
            }
        }
        self.read_again(soon, Duration::ZERO);
        self.read_again(later, BLIND);
    }

    /// Has keys read after a while. What finds no room is found by the next scan.
    fn read_again(&self, keys: Vec<Bytes>, after: Duration) {
        if keys.is_empty() {
            return;
        }
        let Context { index, partition, requests, .. } = &self.context;
        let read = Request::Read(Read::of(*index, keys, partition.topic.policy().capture));
        let requests = requests.downgrade();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            requests.upgrade().map(|requests| requests.try_send(read))
        });
    }

    async fn judge(&mut self, judged: Vec<Judged>) {
        if judged.is_empty() {
            return;
        }
        let Partition { store, names, topic, .. } = &*self.context.partition;
        match store.judge(names, topic.policy(), &judged).await {
            Ok((next, _)) => {
                self.look_at(next);
                if judged.iter().any(|one| matches!(one.deed, Deed::Fire { .. })) {
                    self.wake();
                }
            }
            // The checks come back by themselves.
            Err(reason) => self.not_written(&reason, "verdicts not written: the keys are looked at again"),
        }
    }

    /// Says why, once for each reason in a row.
    fn not_written(&mut self, reason: &Error, what: &str) {
        let topic = &self.context.partition.topic;
        topic.attached.write_errors.add(1);
        if self.trouble.should_log(reason) {
            warn!(topic = %topic.config.name, error = %reason, "{what}");
        }
    }

    /// The script has sent a wake-up; where nothing is heard, that may not be heard either.
    fn wake(&self) {
        if self.context.known.borrow().mode == EventMode::Blind {
            self.context.partition.wakeup.look(Instant::now(), LapseSource::Timer);
        }
    }

    fn look_at(&self, next: Option<u64>) {
        if let Some(ms) = next {
            self.context.partition.checks.head(ms);
        }
    }
}
