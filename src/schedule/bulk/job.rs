//! One of many calls, and the batch that it goes with.

use std::collections::HashSet;

use bytes::Bytes;

use crate::id::ArmingId;
use crate::schedule::lane::{BATCH, BATCH_BYTES, Jobs};
use crate::wire::{Cancel, MAX_BATCH, Move, NewTimer};

const _: () = assert!(BATCH <= MAX_BATCH);

/// One call. Those of one request are of one kind.
pub(super) enum Job {
    Arm(NewTimer),
    Cancel(Cancel),
    Move(Move),
}

impl Job {
    /// The same, made by the running attempt of this arming.
    pub(super) fn made_by(self, by: Option<ArmingId>) -> Self {
        match self {
            Self::Arm(timer) => Self::Arm(NewTimer { by, ..timer }),
            other => other,
        }
    }

    pub(super) fn key(&self) -> &Bytes {
        match self {
            Self::Arm(timer) => &timer.key,
            Self::Cancel(cancel) => &cancel.key,
            Self::Move(moved) => &moved.key,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Arm(timer) => timer.bytes(),
            Self::Cancel(_) | Self::Move(_) => self.key().len(),
        }
    }
}

/// A batch that is being filled.
#[derive(Default)]
pub(super) struct Open {
    pub(super) places: Vec<usize>,
    jobs: Vec<Job>,
    bytes: usize,
    keys: HashSet<Bytes>,
}

impl Open {
    /// A call names no key twice: who names one again opens the next batch, which then waits for this one.
    pub(super) fn has_room(&self, job: &Job) -> bool {
        let fits = self.jobs.len() < BATCH && self.bytes + job.bytes() <= BATCH_BYTES;
        fits && !self.keys.contains(job.key())
    }

    pub(super) fn add(&mut self, place: usize, job: Job) {
        self.places.push(place);
        self.bytes += job.bytes();
        self.keys.insert(job.key().clone());
        self.jobs.push(job);
    }

    pub(super) fn into_jobs(self, only_if_absent: bool) -> Jobs {
        let (mut timers, mut cancels, mut moves) =
            (Vec::with_capacity(self.jobs.len()), Vec::new(), Vec::new());
        for job in self.jobs {
            match job {
                Job::Arm(timer) => timers.push(timer),
                Job::Cancel(cancel) => cancels.push(cancel),
                Job::Move(moved) => moves.push(moved),
            }
        }
        match (cancels.is_empty(), moves.is_empty()) {
            (false, _) => Jobs::Cancel(cancels),
            (_, false) => Jobs::Reschedule(moves),
            _ => Jobs::Arm { only_if_absent, timers },
        }
    }
}
