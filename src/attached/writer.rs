//! Writes down what the reader has found: notes, enrolments and verdicts of one partition.
//!
//! Notes go first, and of each key what came first. A note that waits keeps a handler waiting, and an enrolment nobody.
//! But a note ends what was enrolled before it, so what names the same key goes before.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::discriminant;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::attached::known::Pending;
use crate::attached::request::{Context, Request, Taken};
use crate::connection::retry;
use crate::error::Error;
use crate::events::Prompt;
use crate::lapse::LapseSource;
use crate::log::{LogThrottle, error, warn};
use crate::runtime::{Amount, Gauge, Partition};
use crate::wire::{Deed, Enrolled, Enrolment, Judged, Note, Noted};

/// Notes that wait take so many bytes at most, of each partition; and so many whatever else waits. Beyond, the reader
/// waits, and what is heard meanwhile has its own bound: a drop is a gap.
const NOTES: usize = 8 << 20;
const OTHERS: usize = 4 << 20;
/// About what one takes beside its key. Values are counted where they are read: see `Room` in `attached/request`.
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
            waiting.noting = began.elapsed();
        } else if !(read.is_empty() && judged.is_empty()) {
            self.enrol(read).await;
            self.judge(judged).await;
            waiting.writing = began.elapsed();
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
            waiting.others.clear(); // all but notes are given up
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

/// Writes in one call, at most: everybody else waits for the server meanwhile, and in a flood of notes the claims of
/// what was noted before, and its acks.
const FEW: usize = 64;
/// But what takes long is the line and not the writes, and then so many go at once: about 5 ms of the server's.
const MANY: usize = 250;
/// How long the last call has taken then. A server that is flooded takes that long for a few notes, too.
const LONG: Duration = Duration::from_millis(20);
const LONG_FOR_NOTES: Duration = Duration::from_millis(100);
/// Bytes in one call, about.
const CALL_BYTES: usize = 1 << 20;

/// What waits to be written, by the number of its arrival.
#[derive(Debug, Default)]
struct Waiting {
    notes: VecDeque<(u64, Writing)>,
    others: VecDeque<(u64, Writing)>,
    arrived: u64,
    /// How long the last call took, of notes and of others.
    noting: Duration,
    writing: Duration,
}

impl Waiting {
    fn push(&mut self, writing: Writing) {
        self.arrived += 1;
        let queue = if matches!(writing.what, Write::Note(_)) { &mut self.notes } else { &mut self.others };
        queue.push_back((self.arrived, writing));
    }

    /// What is to be written next, in one call: all of a kind; nothing if nothing waits.
    fn next(&mut self) -> Vec<Writing> {
        if self.notes.is_empty() {
            return first_call(&mut self.others, most(self.writing, LONG));
        }
        let (count, named) = self.named();
        let before = self.take_before(&named);
        if before.is_empty() { self.notes.drain(..count).map(|(_, note)| note).collect() } else { before }
    }

    /// The next notes: how many, and when the first of each of their keys came. A key's second note is not among
    /// them where something else of that key came between the two.
    fn named(&self) -> (usize, HashMap<Bytes, u64>) {
        let most = most(self.noting, LONG_FOR_NOTES);
        let mut named = HashMap::new();
        for (number, writing) in self.notes.iter().take(most) {
            if let Some(key) = writing.what.key() {
                named.entry(key.clone()).or_insert(*number);
            }
        }
        // The first of all others that names such a key after its first note. One that comes behind all of a key's notes
        // parts none of them.
        let mut parted: HashMap<&Bytes, u64> = HashMap::new();
        for (number, writing) in &self.others {
            let key = writing.what.key().filter(|key| named.get(*key).is_some_and(|first| first < number));
            key.map(|key| parted.entry(key).or_insert(*number));
        }
        let is_next = |(number, writing): &&(u64, Writing)| {
            let other = writing.what.key().and_then(|key| parted.get(key));
            other.is_none_or(|other| number < other)
        };
        let count = self.notes.iter().take(most).take_while(is_next).count();
        (count, named)
    }

    /// Takes out what came before the notes of its key, as far as that is one call.
    fn take_before(&mut self, named: &HashMap<Bytes, u64>) -> Vec<Writing> {
        let goes_before = |(number, writing): &(u64, Writing)| {
            writing.what.key().and_then(|key| named.get(key)).is_some_and(|note| number < note)
        };
        let (mut before, mut rest) = (VecDeque::new(), VecDeque::new());
        if !self.others.iter().any(goes_before) {
            return Vec::new();
        }
        for one in self.others.drain(..) {
            if goes_before(&one) { before.push_back(one) } else { rest.push_back(one) }
        }
        let call = first_call(&mut before, most(self.writing, LONG));
        rest.extend(before);
        rest.make_contiguous().sort_by_key(|(number, _)| *number);
        self.others = rest;
        call
    }
}

/// How many go in a call, where the last took so long.
fn most(took: Duration, long: Duration) -> usize {
    if took < long { FEW } else { MANY }
}

/// The first of one kind, as many as fit into a call. Whoever waits for the end of a reading waits for that of the call:
/// else readings of a key each would take a call each.
fn first_call(queue: &mut VecDeque<(u64, Writing)>, most: usize) -> Vec<Writing> {
    let (mut call, mut writes, mut bytes, mut kind) = (Vec::new(), 0, 0, None);
    while let Some((_, writing)) = queue.front() {
        if !matches!(writing.what, Write::Done(_)) {
            writes += 1;
            bytes += writing.what.bytes();
            let is_of_its_kind =
                *kind.get_or_insert(discriminant(&writing.what)) == discriminant(&writing.what);
            let fits = writes == 1 || writes <= most && bytes <= CALL_BYTES;
            if !(is_of_its_kind && fits) {
                break;
            }
        }
        call.extend(queue.pop_front().map(|(_, writing)| writing));
    }
    call
}

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
