//! Whether a server answers, as those find who call it: one piece of news for all of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use crate::Address;
use crate::error::Error;
use crate::lock::lock;
use crate::log::{info, warn};

/// What is known of one server. All who use an [`Address`] share it.
#[derive(Debug, Default)]
pub struct Outage {
    /// Whether the last thing that it did was to answer. Read by every call; the lock is for changes.
    answers: AtomicBool,
    /// Whether somebody who waits for it, a listener, wants to read of it. Producers are told by errors.
    reported: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether it ever answered.
    known: bool,
    since: Option<Instant>,
}

impl Outage {
    /// From now on losses and returns are said.
    pub fn report(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Whether the last that was asked of it was answered.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Whether it is known not to answer.
    pub fn is_lost(&self) -> bool {
        !self.answers() && lock(&self.state).since.is_some()
    }

    /// It cannot be reached, or has not answered in time. Said once, however often it is tried.
    pub(super) fn failed(&self, server: &Address, error: &Error) {
        if self.is_lost() {
            return;
        }
        let known = {
            let mut state = lock(&self.state);
            self.answers.store(false, Ordering::Relaxed);
            if state.since.replace(Instant::now()).is_some() {
                return;
            }
            state.known
        };
        match (self.reported.load(Ordering::Relaxed), known) {
            (false, _) => lock(&self.state).since = None,
            (true, true) => warn!(%server, %error, "the server is lost; waiting for it"),
            (true, false) => warn!(%server, %error, "waiting for the server"),
        }
    }

    /// It has answered, if only by an error.
    pub(super) fn answered(&self, server: &Address) {
        if self.answers() {
            return;
        }
        let (since, known) = {
            let mut state = lock(&self.state);
            self.answers.store(true, Ordering::Relaxed);
            (state.since.take(), std::mem::replace(&mut state.known, true))
        };
        match since.map(|since| since.elapsed()) {
            Some(away) if known => info!(%server, ?away, "the server is back"),
            Some(away) => info!(%server, ?away, "the server is there"),
            None => {}
        }
    }
}
