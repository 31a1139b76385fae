//! Repeats calls until they have an answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};

const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Makes a call until it is answered, it cannot help to wait any longer, or `until` has come; none: without
/// end. Between tries it waits ever longer, up to a second.
///
/// The call is told whether it repeats one that may have been executed, by what `repeats` says of the errors
/// so far; so is `heals`, which says whether waiting may help. An error comes with the same.
pub async fn retry<T, F>(
    until: Option<Instant>,
    repeats: impl Fn(&Error) -> bool,
    mut heals: impl FnMut(&Error, bool) -> bool,
    mut call: impl FnMut(bool) -> F,
) -> Result<T, (Error, bool)>
where
    F: Future<Output = Result<T>>,
{
    let (mut repeat, mut delays) = (false, RetryDelays::default());
    loop {
        let error = match call(repeat).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        repeat |= repeats(&error);
        let wait = delays.next();
        if !heals(&error, repeat) || until.is_some_and(|until| Instant::now() + wait >= until) {
            return Err((error, repeat));
        }
        tokio::time::sleep(wait).await;
    }
}

/// Makes a call until it is answered, refused, or `patience` has run out.
///
/// If in the end nobody knows whether it was executed, the error's kind is
/// [`Unknown`](ErrorKind::Unknown).
pub async fn persist<T, F>(patience: Duration, call: impl FnMut(bool) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let until = Some(Instant::now() + patience);
    let answer = retry(until, Error::maybe_done, |error, _| may_pass(error), call).await;
    answer.map_err(|(error, repeat)| refused(error, repeat))
}

/// The error of a call that is given up, and was perhaps executed.
pub fn refused(error: Error, repeat: bool) -> Error {
    if !repeat {
        return error;
    }
    let message = format!("the call was sent and may have been executed, but has no answer: {error}");
    Error::new(ErrorKind::Unknown, message)
}

/// Tells Redis how work ended until that is answered, refused for good, or
/// `patience` has run out: what was done must not be done again for want of a
/// right, a primary or a free name that an operator is about to give back.
///
/// `complain` hears each error.
pub async fn insist<T, F>(
    patience: Duration,
    call: impl FnMut(bool) -> F,
    mut complain: impl FnMut(&Error),
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    // A lack of rights may have stopped a script half-way.
    let partly = |error: &Error| error.maybe_done() || error.needs_operator();
    let heals = |error: &Error, _| {
        complain(error);
        partly(error) || error.is_transient()
    };
    let answer = retry(Some(Instant::now() + patience), partly, heals, call).await;
    answer.map_err(|(error, _)| error)
}

/// Whether waiting a moment is likely to help. A full or read-only server is
/// the caller's to deal with.
pub fn may_pass(error: &Error) -> bool {
    use ErrorKind::{Destroying, Repartitioning, Timeout, Unavailable, Unreachable};
    error.maybe_done()
        || matches!(error.kind(), Unreachable | Timeout | Unavailable | Destroying | Repartitioning)
}

/// Doubling waits with jitter, up to a second, without end.
#[derive(Debug)]
pub struct RetryDelays(Duration);

impl Default for RetryDelays {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl RetryDelays {
    /// Returns how long to wait before the next try.
    #[allow(clippy::should_implement_trait, reason = "there is always a next, so that it is no Option")]
    pub fn next(&mut self) -> Duration {
        let wait = self.0.mul_f64(rand::random_range(0.5..1.0));
        self.0 = (self.0 * 2).min(LONGEST_WAIT);
        wait
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn lost() -> Error {
        Error::new(ErrorKind::Timeout, "no answer").unanswered()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_have_been_executed_is_repeated_as_such() {
        let mut seen = Vec::new();
        let answer = persist(PATIENCE, |repeat| {
            seen.push(repeat);
            ready(match seen.len() {
                1 => Err(Error::new(ErrorKind::Unreachable, "refused")),
                2 => Err(lost()),
                3 => Err(Error::new(ErrorKind::Unavailable, "LOADING")),
                _ => Ok(7),
            })
        });
        assert_eq!(answer.await.unwrap(), 7);
        assert_eq!(seen, [false, false, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_lost_answer_leaves_the_outcome_unknown() {
        let mut tries = 0;
        let answer: Result<()> = persist(PATIENCE, |_| {
            tries += 1;
            ready(Err(if tries == 1 { lost() } else { Error::new(ErrorKind::OutOfMemory, "OOM") }))
        })
        .await;
        assert!(answer.unwrap_err().is_unknown());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_insists_waits_for_an_operator_too_but_not_for_the_impossible() {
        let refusals =
            [ErrorKind::ReadOnly, ErrorKind::OutOfMemory, ErrorKind::Permission, ErrorKind::WrongType];
        let (mut seen, mut heard) = (Vec::new(), 0);
        let answer = insist(
            PATIENCE,
            |repeat| {
                seen.push(repeat);
                ready(match refusals.get(seen.len() - 1) {
                    Some(kind) => Err(Error::new(*kind, "refused")),
                    None => Ok(7),
                })
            },
            |_| heard += 1,
        );
        assert_eq!(answer.await.unwrap(), 7);
        assert_eq!((seen, heard), (vec![false, false, false, true, true], 4));
        let impossible: Result<()> =
            insist(PATIENCE, |_| ready(Err(Error::new(ErrorKind::Server, "ERR"))), |_| ()).await;
        assert_eq!(impossible.unwrap_err().kind(), ErrorKind::Server);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_runs_out() {
        let started = Instant::now();
        let answer: Result<()> =
            persist(PATIENCE, |_| ready(Err(Error::new(ErrorKind::Unreachable, "refused")))).await;
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(started.elapsed() <= PATIENCE);
    }
}
