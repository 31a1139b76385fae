//! Whether a server answers, and whether an answer can be believed to be a primary's.
//!
//! A primary that hangs for longer than its cluster waits, or its sentinels, is replaced. When it goes on it takes what has
//! waited in its sockets, and answers, until it learns that it is a replica by now; then it throws all of that away
//! (docs/decisions.md says how that was seen). So what was answered after so long a silence counts as unanswered: it is asked for
//! again, as a repeat, of whoever is the primary by then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::address::{Address, Endpoint};
use crate::boottime;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{info, warn};
use crate::panics::lock;

/// Nobody is replaced within this time: `cluster-node-timeout` is 15 s by default and `down-after-milliseconds` 30 s, and
/// both are of no use below this.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// What was asked of a server before another took its place is answered within this, or not at all.
const LEFT_BEHIND: Duration = Duration::from_millis(250);

/// What is on its way to one server, and how long nothing has come back.
#[derive(Debug, Default)]
pub(crate) struct Trust(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// Calls that wait for their answers.
    waiting: usize,
    /// When the last answer came, or the first of these was made.
    since: Option<Instant>,
    /// What was asked before this was answered after a silence, or will be.
    doubted: Option<Instant>,
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    trust: &'a Trust,
    at: Instant,
}

impl Trust {
    pub(crate) fn asks(&self) -> Asked<'_> {
        // The server may be suspended together with this program, and be replaced by one that is not.
        let (at, mut progress) = (boottime::now(), lock(&self.0));
        if progress.waiting == 0 {
            progress.since = Some(at);
        }
        progress.waiting += 1;
        Asked { trust: self, at }
    }
}

/// The answer to a call, unless this server has been left for another by then, or was silent for so long that it may
/// have been replaced; `doubt` is told of that. In both cases the call counts as unanswered.
pub(super) async fn believed<T>(
    trust: Option<&Trust>,
    server: &Endpoint,
    left: impl Future<Output = ()>,
    doubt: impl FnOnce(),
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let asked = trust.map(Trust::asks);
    let left_behind = async {
        left.await;
        tokio::time::sleep(LEFT_BEHIND).await;
    };
    let unanswered = |why| Error::new(ErrorKind::Unreachable, format!("{server} {why}")).unanswered();
    tokio::select! {
        biased;
        answer = call => match answer {
            // Of what has no answer there is nothing to believe.
            Err(error) if error.code().is_none() => Err(error),
            answer if asked.as_ref().is_none_or(Asked::is_believed) => answer,
            _ => {
                doubt();
                Err(unanswered("was silent for long, and may have been replaced meanwhile"))
            }
        },
        () = left_behind => Err(unanswered("did not answer, and another has taken its place")),
    }
}

impl Asked<'_> {
    /// Whether the answer that has just come can be believed.
    fn is_believed(&self) -> bool {
        let (now, mut progress) = (boottime::now(), lock(&self.trust.0));
        let silence = progress.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        progress.since = Some(now);
        if silence >= SILENCE {
            progress.doubted = Some(now);
        }
        progress.doubted.is_none_or(|doubted| self.at > doubted)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.trust.0).waiting -= 1;
    }
}

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
    pub(crate) fn report(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Whether the last that was asked of it was answered.
    pub(crate) fn answers(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_before_the_end_of_a_silence_is_not_believed() {
        let trust = Trust::default();
        let first = trust.asks();
        advance(SILENCE / 2).await;
        let second = trust.asks();
        advance(SILENCE / 2).await;
        // Whichever of them is looked at first.
        assert!(!second.is_believed());
        assert!(!first.is_believed());
        advance(MS).await;
        assert!(trust.asks().is_believed(), "what is asked from then on is answered by who hears");
    }

    #[tokio::test(start_paused = true)]
    async fn who_answers_others_is_not_silent_and_nor_is_one_that_is_asked_nothing() {
        let trust = Trust::default();
        let slow = trust.asks();
        for _ in 0..3 {
            let quick = trust.asks();
            advance(SILENCE - MS).await;
            assert!(quick.is_believed());
        }
        assert!(slow.is_believed());
        drop(slow);
        advance(SILENCE * 10).await;
        assert!(trust.asks().is_believed());
    }
}
