//! What one caller asks of a partition, and what it is answered.

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::wire::{ArmHow, Cancel, CancelHow, Change, Changed, Move, NewTimer, RescheduleHow};

/// Timers of which the same is asked; no key twice.
#[derive(Debug)]
pub(in crate::schedule) struct Ask {
    /// Whether trigger keys are to be seen to.
    pub(in crate::schedule) triggers: bool,
    pub(in crate::schedule) jobs: Jobs,
}

#[derive(Debug)]
pub(in crate::schedule) enum Jobs {
    Arm { only_if_absent: bool, timers: Vec<NewTimer> },
    Cancel(Vec<Cancel>),
    Reschedule(Vec<Move>),
}

/// What goes into one script call: asks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    what: u8,
    only_if_absent: bool,
    triggers: bool,
}

/// One answer for each timer, or one error for all.
pub(super) type Answers = Result<Vec<Result<Changed>>>;

/// An ask that waits to be sent, or for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ask: Ask,
    answer: oneshot::Sender<Answers>,
    /// The end of the caller's patience.
    pub(super) until: Instant,
    /// The runtime on which the caller waits.
    pub(super) runtime: Handle,
}

impl Waiting {
    pub(super) fn new(ask: Ask, until: Instant) -> (Self, oneshot::Receiver<Answers>) {
        let (answer, receiver) = oneshot::channel();
        (Self { ask, answer, until, runtime: Handle::current() }, receiver)
    }

    /// Nobody waits for it any more.
    pub(super) fn is_forsaken(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, answers: Answers) {
        // A caller that has gone needs none.
        let _ = self.answer.send(answers.map_err(|error| self.ask.name(error)));
    }
}

impl Ask {
    pub(super) fn kind(&self) -> Kind {
        let (what, only_if_absent) = match &self.jobs {
            Jobs::Arm { only_if_absent, .. } => (b'a', *only_if_absent),
            Jobs::Cancel(_) => (b'c', false),
            Jobs::Reschedule(_) => (b'r', false),
        };
        Kind { what, only_if_absent, triggers: self.triggers }
    }

    pub(super) fn len(&self) -> usize {
        match &self.jobs {
            Jobs::Arm { timers, .. } => timers.len(),
            Jobs::Cancel(cancels) => cancels.len(),
            Jobs::Reschedule(moves) => moves.len(),
        }
    }

    /// Bytes of keys and payloads.
    pub(super) fn bytes(&self) -> usize {
        match &self.jobs {
            Jobs::Arm { timers, .. } => timers.iter().map(NewTimer::bytes).sum(),
            Jobs::Cancel(_) | Jobs::Reschedule(_) => self.keys().map(Bytes::len).sum(),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let (armed, cancelled, moved): (&[NewTimer], &[Cancel], &[Move]) = match &self.jobs {
            Jobs::Arm { timers, .. } => (timers, &[], &[]),
            Jobs::Cancel(cancels) => (&[], cancels, &[]),
            Jobs::Reschedule(moves) => (&[], &[], moves),
        };
        let armed = armed.iter().map(|timer| &timer.key);
        armed.chain(cancelled.iter().map(|cancel| &cancel.key)).chain(moved.iter().map(|moved| &moved.key))
    }

    pub(super) fn change(&self, repeat: bool) -> Change<'_> {
        change_of(&[self], repeat)
    }

    /// An error of the whole call, as this caller sees it.
    pub(super) fn name(&self, error: Error) -> Error {
        match &self.jobs {
            Jobs::Arm { timers, .. } if timers.len() == 1 => timers[0].failed(error),
            Jobs::Cancel(cancels) if cancels.len() == 1 => error.at_key(&cancels[0].key),
            Jobs::Reschedule(moves) if moves.len() == 1 => error.at_key(&moves[0].key),
            _ => error,
        }
    }
}

/// One script call of asks of one kind.
pub(super) fn change_of<'a>(asks: &[&'a Ask], repeat: bool) -> Change<'a> {
    let triggers = asks.iter().any(|ask| ask.triggers);
    let (mut armed, mut only_if_absent, mut cancelled, mut moved) =
        (Vec::new(), false, Vec::new(), Vec::new());
    for ask in asks {
        match &ask.jobs {
            Jobs::Arm { only_if_absent: absent, timers } => {
                only_if_absent = *absent;
                armed.extend(timers);
            }
            Jobs::Cancel(cancels) => cancelled.extend(cancels),
            Jobs::Reschedule(moves) => moved.extend(moves),
        }
    }
    if !cancelled.is_empty() {
        return Change::Cancel(CancelHow { triggers }, cancelled);
    }
    if !moved.is_empty() {
        return Change::Reschedule(RescheduleHow { triggers }, moved);
    }
    Change::Arm(ArmHow { only_if_absent, triggers, repeat }, armed)
}
