//! Tracks the availability of servers, and rejects answers of a primary that may have been replaced.
//!
//! A cluster or its sentinels replace a primary that hangs for too long. When the old primary resumes, it executes the calls
//! that wait in its sockets, and answers them. Later it detects that it is a replica, and loses those writes
//! (`docs/internals/decisions.md` has the evidence). An answer after a long silence therefore counts as no
//! answer, and the call is repeated at the current primary.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::address::{Address, Endpoint};
use crate::boottime;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{info, warn};
use crate::panics::lock;

/// No primary is replaced within this time: by default `cluster-node-timeout` is 15 s and `down-after-milliseconds` is 30 s,
/// and values below one second are not practical.
pub(crate) const MAX_TRUSTED_SILENCE: Duration = Duration::from_secs(1);

/// A call to a server that was replaced is abandoned after this time.
const REPLACED_ANSWER_TIMEOUT: Duration = Duration::from_millis(250);

/// Tracks the pending calls to one server, to detect answers after a long silence.
#[derive(Debug, Default)]
pub(crate) struct ReplacementGuard(Mutex<PendingCalls>);

#[derive(Debug, Default)]
struct PendingCalls {
    waiting: usize,
    /// The time of the last answer, or of the first pending call if that is later.
    since: Option<Instant>,
    /// The end of the last long silence. Answers to calls from before are rejected.
    doubted: Option<Instant>,
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(crate) struct PendingCall<'a> {
    trust: &'a ReplacementGuard,
    at: Instant,
}

impl ReplacementGuard {
    pub(crate) fn start_call(&self) -> PendingCall<'_> {
        // This clock advances during a suspension: the machine of this program and its server may be suspended, and another
        // server be promoted.
        let (at, mut progress) = (boottime::now(), lock(&self.0));
        if progress.waiting == 0 {
            progress.since = Some(at);
        }
        progress.waiting += 1;
        PendingCall { trust: self, at }
    }
}

/// Waits for the answer to a call, and rejects it if the server may have been replaced.
///
/// # Errors
/// The error of the call, or an [unanswered](Error::unanswered) error in two cases: `left` has completed, as another server
/// has replaced this one; or the server was silent for [`MAX_TRUSTED_SILENCE`], after which this calls `doubt`.
pub(super) async fn reject_if_replaced<T>(
    trust: Option<&ReplacementGuard>,
    server: &Endpoint,
    left: impl Future<Output = ()>,
    doubt: impl FnOnce(),
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let asked = trust.map(ReplacementGuard::start_call);
    let left_behind = async {
        left.await;
        tokio::time::sleep(REPLACED_ANSWER_TIMEOUT).await;
    };
    let unanswered = |why| Error::new(ErrorKind::Unreachable, format!("{server} {why}")).unanswered();
    tokio::select! {
        biased;
        answer = call => match answer {
            // Without an answer of the server there is nothing to reject.
            Err(error) if error.code().is_none() => Err(error),
            answer if asked.as_ref().is_none_or(PendingCall::accepts_answer) => answer,
            _ => {
                doubt();
                Err(unanswered("was silent for at least 1 s, and may have been replaced"))
            }
        },
        () = left_behind => Err(unanswered("did not answer, and another server has replaced it")),
    }
}

impl PendingCall<'_> {
    /// Records that an answer has arrived, and returns whether to accept it.
    fn accepts_answer(&self) -> bool {
        let (now, mut progress) = (boottime::now(), lock(&self.trust.0));
        let silence = progress.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        progress.since = Some(now);
        if silence >= MAX_TRUSTED_SILENCE {
            progress.doubted = Some(now);
        }
        progress.doubted.is_none_or(|doubted| self.at > doubted)
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        lock(&self.trust.0).waiting -= 1;
    }
}

/// The availability of one server. All clones of its [`Address`] share it.
#[derive(Debug, Default)]
pub struct Availability {
    /// True if the last call was answered. Every call reads it without the lock; changes hold the lock.
    answers: AtomicBool,
    /// True if losses and returns are logged, which a listener enables. Producers get errors instead.
    reported: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True if the server has ever answered.
    known: bool,
    /// The time since which the server is lost.
    since: Option<Instant>,
}

impl Availability {
    /// Starts logging losses and returns.
    pub(crate) fn enable_log(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Returns whether the last call was answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns whether the server is lost. Only detected while losses are logged.
    pub fn is_lost(&self) -> bool {
        !self.is_answering() && lock(&self.state).since.is_some()
    }

    /// Records that the server cannot be reached, or did not answer in time. Logs this once for all tries.
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

    /// Records an answer, which may be an error of the server.
    pub(super) fn answered(&self, server: &Address) {
        if self.is_answering() {
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_before_the_end_of_a_silence_is_not_believed() {
        let trust = ReplacementGuard::default();
        let first = trust.start_call();
        advance(MAX_TRUSTED_SILENCE / 2).await;
        let second = trust.start_call();
        advance(MAX_TRUSTED_SILENCE / 2).await;
        // The order of the answers does not matter.
        assert!(!second.accepts_answer());
        assert!(!first.accepts_answer());
        advance(MS).await;
        assert!(trust.start_call().accepts_answer(), "what is asked from then on is answered by who hears");
    }

    #[tokio::test(start_paused = true)]
    async fn who_answers_others_is_not_silent_and_nor_is_one_that_is_asked_nothing() {
        let trust = ReplacementGuard::default();
        let slow = trust.start_call();
        for _ in 0..3 {
            let quick = trust.start_call();
            advance(MAX_TRUSTED_SILENCE - MS).await;
            assert!(quick.accepts_answer());
        }
        assert!(slow.accepts_answer());
        drop(slow);
        advance(MAX_TRUSTED_SILENCE * 10).await;
        assert!(trust.start_call().accepts_answer());
    }
}
