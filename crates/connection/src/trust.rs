//! Whether an answer can be believed to be a primary's.
//!
//! A primary that hangs for longer than its cluster waits, or its sentinels, is replaced. When it goes on it takes what has
//! waited in its sockets, and answers, until it learns that it is a replica by now; then it throws all of that away
//! (docs/decisions.md says how that was seen). So what was answered after so long a silence counts as unanswered: it is asked for
//! again, as a repeat, of whoever is the primary by then.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::boottime;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;

/// Nobody is replaced within this time: `cluster-node-timeout` is 15 s by default and `down-after-milliseconds` 30 s, and
/// both are of no use below this.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// What was asked of a server before another took its place is answered within this, or not at all.
const LEFT_BEHIND: Duration = Duration::from_millis(250);

/// What is on its way to one server, and how long nothing has come back.
#[derive(Debug, Default)]
pub struct Trust(Mutex<Progress>);

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
pub struct Asked<'a> {
    trust: &'a Trust,
    at: Instant,
}

impl Trust {
    pub fn asks(&self) -> Asked<'_> {
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
    pub fn is_believed(&self) -> bool {
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
