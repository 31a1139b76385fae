//! Attempts that were left to the runtime of the handlers, until it polls them.
//!
//! An attempt that was never polled was not run. So a job stays here until the first poll takes it: one that the
//! runtime never polls, or drops, can still be handed back, and a poll that comes too late finds nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::roles::attempt::Job;

/// A runtime that has not polled an attempt for so long stands still. Half of what another listener may take to begin
/// it, so that it is less than a second late.
const UNPOLLED: Duration = Duration::from_millis(500);
/// A look that comes so much too late shows that this process, or its machine, stood still itself.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// Jobs that were begun together.
pub(super) struct Begun {
    at: Instant,
    jobs: Mutex<Jobs>,
}

struct Jobs {
    left: usize,
    all: Vec<Option<Job>>,
}

impl Begun {
    pub(super) fn new(jobs: Vec<Job>) -> Arc<Self> {
        let (left, all) = (jobs.len(), jobs.into_iter().map(Some).collect());
        Arc::new(Self { at: Instant::now(), jobs: Mutex::new(Jobs { left, all }) })
    }

    /// Returns the job for the poll that comes now; none if it was handed back.
    pub(super) fn take(&self, place: usize) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.all.get_mut(place)?.take()?;
        jobs.left -= 1;
        Some(job)
    }

    fn take_all(&self) -> Vec<Job> {
        let mut jobs = lock(&self.jobs);
        jobs.left = 0;
        jobs.all.iter_mut().filter_map(Option::take).collect()
    }

    fn is_polled(&self) -> bool {
        lock(&self.jobs).left == 0
    }
}

/// All that were begun and were not polled so far, and when to look for those that never are.
#[derive(Default)]
pub(super) struct Unpolled {
    begun: VecDeque<Arc<Begun>>,
    look: Option<Instant>,
}

impl Unpolled {
    /// Adds what was begun just now. Returns whether that brings the next look forward.
    pub(super) fn add(&mut self, begun: Arc<Begun>) -> bool {
        self.forget_polled();
        let at = begun.at + UNPOLLED;
        self.begun.push_back(begun);
        let is_news = self.look.is_none();
        self.look.get_or_insert(at);
        is_news
    }

    /// When to look.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.look
    }

    /// Looks, if it is time. Returns since when the runtime stands still, if it does.
    pub(super) fn look(&mut self, now: Instant) -> Option<Instant> {
        let planned = self.look.filter(|at| *at <= now)?;
        self.forget_polled();
        let first = self.begun.front().map(|begun| begun.at);
        self.look = first.map(|at| at + UNPOLLED);
        if now > planned + OVERSLEPT {
            // The handlers' runtime could not poll meanwhile either.
            self.look = first.map(|_| now + UNPOLLED);
            return None;
        }
        first.filter(|at| *at + UNPOLLED <= now)
    }

    /// Takes back everything.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        self.look = None;
        self.begun.drain(..).flat_map(|begun| begun.take_all()).collect()
    }

    fn forget_polled(&mut self) {
        while self.begun.front().is_some_and(|begun| begun.is_polled()) {
            self.begun.pop_front();
        }
    }
}
