//! Writes down what the reader has found: notes, enrolments and verdicts of one partition.

mod order;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::attached::known::Pending;
use crate::attached::request::{Context, Request};
use crate::attached::room::Taken;
use crate::attached::writer::order::Waiting;
use crate::connection::retry;
use crate::error::Error;
use crate::events::Prompt;
use crate::log::{error, warn};
use crate::log_throttle::LogThrottle;
use crate::runtime::{Amount, Gauge, Partition};
use crate::source::LapseSource;
use crate::wire::{Deed, Enrolled, Enrolment, Judged, Note, Noted};

/// Notes that wait take so many bytes at most, of each partition; and so many whatever else waits. Beyond, the reader
/// waits, and what is heard meanwhile has its own bound: a drop is a gap.
const NOTES: usize = 8 << 20;
const OTHERS: usize = 4 << 20;
/// About what one takes beside its key. Values are counted where they are read: see `attached/room`.
const EACH: usize = 160;
/// A partition that takes no note for so long is parked.
const PARKED: Duration = Duration::from_secs(5);
/// After so long keys are read again that could not be enrolled: since others have heard more of them, and where no
/// canary is heard. So many bytes of them wait.
const BEHIND: Duration = Duration::from_millis(50);
const BLIND: Duration = Duration::from_secs(3);
const AGAIN_BYTES: usize = 4 << 20;

/// Something to be written down.
#[derive(Debug)]
pub(crate) enum Write {
    /// An expiry was heard.
    Note(Note),
    /// A deadline was read, and is known once it is written.
    Enrol(Enrolment, Option<Pending>),
    /// A look has led to a verdict.
    Judge(Judged),
    /// Somebody waits until all of that was written.
    Done(oneshot::Sender<()>),
}

impl Write {
    fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Note(note) => Some(&note.key),
            Self::Enrol(one, _) => Some(&one.key),
            Self::Judge(one) => Some(&one.watch.key),
            Self::Done(_) => None,
        }
    }

    /// What it takes while it waits, without a value.
    fn waiting_bytes(&self) -> usize {
        self.key().map_or(0, |key| key.len() + EACH)
    }

    /// What a call carries of it.
    fn bytes(&self) -> usize {
        let copy = if let Self::Enrol(one, _) = self { one.copy.len() } else { 0 };
        self.waiting_bytes() + copy
    }
}

/// One of them, and what is free again once it is written.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(super) what: Write,
    _waits: (Option<OwnedSemaphorePermit>, Amount),
    _read: Taken,
}

/// The end of a writer's queue at which the reader stands.
#[derive(Debug)]
pub(crate) struct Writes {
    sender: mpsc::UnboundedSender<Writing>,
    notes: Arc<Semaphore>,
    others: Arc<Semaphore>,
    waiting: Gauge,
}

impl Writes {
    /// And the other end.
    pub(super) fn new(waiting: Gauge) -> (Self, mpsc::UnboundedReceiver<Writing>) {
        let (sender, writes) = mpsc::unbounded_channel();
        let room = |bytes| Arc::new(Semaphore::new(bytes));
        (Self { sender, notes: room(NOTES), others: room(OTHERS), waiting }, writes)
    }

    /// Waits until there is room.
    pub(super) async fn send(&self, what: Write, read: Taken) {
        let bytes = what.waiting_bytes();
        let amount = self.waiting.add(bytes);
        let room = if matches!(what, Write::Note(_)) { &self.notes } else { &self.others };
        let units = u32::try_from(bytes).unwrap_or(u32::MAX);
        // It is never closed.
        let taken = room.clone().acquire_many_owned(units).await.ok();
        let _ = self.sender.send(Writing { what, _waits: (taken, amount), _read: read });
    }
}

/// The writer of one partition.
pub(crate) struct Writer {
    context: Context,
    full: bool,
    trouble: LogThrottle,
    /// For keys that are read again after a while.
    again: Arc<Semaphore>,
}

impl Writer {
    pub(crate) fn new(context: Context, waiting: Gauge) -> (Self, Writes, mpsc::UnboundedReceiver<Writing>) {
        let again = Arc::new(Semaphore::new(AGAIN_BYTES));
        let writer = Self { context, full: false, trouble: LogThrottle::default(), again };
        let (writes, waiting) = Writes::new(waiting);
        (writer, writes, waiting)
    }

    /// Until nobody has writes any more.
    pub(crate) async fn run(mut self, mut writes: mpsc::UnboundedReceiver<Writing>) {
        let mut waiting = Waiting::default();
        while let Some(first) = writes.recv().await {
            waiting.push(first);
            loop {
                while let Ok(more) = writes.try_recv() {
                    waiting.push(more);
                }
                let call = waiting.next();
                if call.is_empty() {
                    break;
                }
                self.write(call, &mut waiting, &mut writes).await;
            }
        }
    }

    /// Makes one call.
    async fn write(
        &mut self,
        call: Vec<Writing>,
        waiting: &mut Waiting,
        writes: &mut mpsc::UnboundedReceiver<Writing>,
    ) {
        let (mut notes, mut read, mut judged, mut awaited) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut room = Vec::with_capacity(call.len());
        for Writing { what, _waits: waits, _read: taken } in call {
            room.push((waits, taken));
            match what {
                Write::Note(note) => notes.push(note),
                Write::Enrol(one, pending) => read.push((one, pending)),
                Write::Judge(one) => judged.push(one),
                Write::Done(done) => awaited.push(done),
            }
        }
        let began = Instant::now();
        if !notes.is_empty() {
            self.insist(notes, waiting, writes).await;
            waiting.noted_in(began.elapsed());
        } else if !(read.is_empty() && judged.is_empty()) {
            self.enrol(read).await;
            self.judge(judged).await;
            waiting.wrote_in(began.elapsed());
        }
        awaited.into_iter().for_each(|done| _ = done.send(()));
    }

    /// Notes what was heard. While that is not possible, nothing else is kept for this partition: enrolments are found
    /// by the next scan, verdicts come back, and others need the room.
    async fn insist(
        &self,
        notes: Vec<Note>,
        waiting: &mut Waiting,
        writes: &mut mpsc::UnboundedReceiver<Writing>,
    ) {
        let mut noting = pin!(self.note(notes));
        if timeout(PARKED, &mut noting).await.is_ok() {
            return;
        }
        loop {
            waiting.keep_notes();
            tokio::select! {
                () = &mut noting => return,
                Some(more) = writes.recv() => waiting.push(more),
            }
        }
    }

    /// Insisted on without end: a note that is left out would make all later ones wrong.
    async fn note(&self, notes: Vec<Note>) {
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
            self.noted(&notes, &replies);
        }
    }

    fn noted(&self, notes: &[Note], replies: &[Noted]) {
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
            let late = notes.iter().zip(replies).filter(|(_, reply)| **reply == Noted::Stale);
            let nodes: BTreeSet<_> = late.map(|(note, _)| note.identity.node()).collect();
            for reader in nodes.into_iter().filter_map(|node| self.context.readers.of_node(node)) {
                let _ = reader.try_send(Request::Late);
            }
        }
    }

    async fn enrol(&mut self, read: Vec<(Enrolment, Option<Pending>)>) {
        if read.is_empty() {
            return;
        }
        let (read, pending): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let deadlines = &self.context.deadlines;
        match store.enrol(names, topic.policy(), &read).await {
            Ok((next, replies)) => {
                for (reply, pending) in replies.iter().zip(pending) {
                    use Enrolled::{Known, New, Wanted};
                    let Some(pending) = pending else { continue };
                    let stands = matches!(reply, New | Known | Wanted);
                    if stands { deadlines.confirm(pending) } else { deadlines.refuse(pending) }
                }
                self.trouble = LogThrottle::default();
                self.look_at(next);
                self.enrolled(&read, &replies);
            }
            Err(reason) => {
                pending.into_iter().flatten().for_each(|pending| deadlines.refuse(pending));
                self.not_written(&reason, "keys not enrolled: the next scan finds them");
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
        let (mut behind, mut blind) = (Vec::new(), Vec::new());
        for (one, reply) in read.iter().zip(replies) {
            match reply {
                // Where no canary is heard, what was heard shortly before stands for a while, however often
                // the keys are read.
                Enrolled::Stale if one.at.canary == 0 => blind.push(one.key.clone()),
                Enrolled::Stale => behind.push(one.key.clone()),
                Enrolled::Wanted => self.context.prompts.add(one.key.clone(), Prompt::Wanted),
                _ => {}
            }
        }
        self.read_again(behind, BEHIND);
        self.read_again(blind, BLIND);
    }

    /// Has keys read after a while. What finds no room is found by a scan, as of prompts.
    fn read_again(&self, keys: Vec<Bytes>, after: Duration) {
        if keys.is_empty() {
            return;
        }
        let bytes = keys.iter().map(|key| key.len() + EACH).sum::<usize>();
        let room = self.again.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let Ok(room) = room else { return self.context.prompts.leave_out(keys.len()) };
        let prompts = self.context.prompts.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            keys.into_iter().for_each(|key| prompts.add(key, Prompt::Wanted));
            drop(room);
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
        if self.context.known.borrow().mode.hears_nothing() {
            self.context.partition.wakeup.look(Instant::now(), LapseSource::Timer);
        }
    }

    fn look_at(&self, next: Option<u64>) {
        if let Some(ms) = next {
            self.context.partition.checks.head(ms);
        }
    }
}

#[cfg(test)]
mod tests;
