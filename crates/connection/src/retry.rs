//! Repeats calls until the server answers.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};

const MIN_RETRY_PAUSE: Duration = Duration::from_millis(20);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Repeats a call until it succeeds, `heals` returns false, or the next try would be at `until` or later. `None` for `until`
/// means no limit. The pauses between tries double, up to one second.
///
/// `call` and `heals` receive `true` once `repeats` has returned true for an error, which means that an earlier try may have
/// been executed. `heals` returns whether a later try may succeed.
///
/// # Errors
/// The last error, with that flag.
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

/// Repeats a call until the server answers it, or `retry_for` has passed. Errors that are not [retryable](is_retryable) end
/// it.
///
/// # Errors
/// The last error, with the kind [`Unknown`](ErrorKind::Unknown) if an earlier try may have been executed.
pub async fn retry_until_answered<T, F>(retry_for: Duration, call: impl FnMut(bool) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let until = Some(Instant::now() + retry_for);
    let answer = retry(until, Error::maybe_done, |error, _| is_retryable(error), call).await;
    answer.map_err(|(error, repeat)| unknown_outcome(error, repeat))
}

/// Returns the error of a call that ended without success. With `repeat`, an earlier try may have been executed, and the
/// kind of the error is [`Unknown`](ErrorKind::Unknown).
pub fn unknown_outcome(error: Error, repeat: bool) -> Error {
    if !repeat {
        return error;
    }
    let message = format!("the call was sent and may have been executed, but has no answer: {error}");
    Error::new(ErrorKind::Unknown, message)
}

/// Repeats a call that settles finished work until the server answers it, refuses it permanently, or `retry_for` has passed.
/// Errors that an operator can repair, such as a missing permission, do not end the repeats: without the settlement,
/// finished work would run again.
///
/// `log` receives each error.
pub async fn retry_settling<T, F>(
    retry_for: Duration,
    call: impl FnMut(bool) -> F,
    mut log: impl FnMut(&Error),
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    // A missing permission may have stopped a script after some of its writes.
    let partly = |error: &Error| error.maybe_done() || error.needs_operator();
    let heals = |error: &Error, _| {
        log(error);
        partly(error) || error.is_transient()
    };
    let answer = retry(Some(Instant::now() + retry_for), partly, heals, call).await;
    answer.map_err(|(error, _)| error)
}

/// Returns whether a repeat is likely to succeed soon. False for a full or read-only server, which the caller has to handle.
pub fn is_retryable(error: &Error) -> bool {
    use ErrorKind::{Destroying, Repartitioning, Timeout, Unavailable, Unreachable};
    error.maybe_done()
        || matches!(error.kind(), Unreachable | Timeout | Unavailable | Destroying | Repartitioning)
}

/// Endless pauses between retries, with jitter. They double from 20 ms to one second.
#[derive(Debug)]
pub struct RetryDelays(Duration);

impl Default for RetryDelays {
    fn default() -> Self {
        Self(MIN_RETRY_PAUSE)
    }
}

impl RetryDelays {
    /// Returns the pause before the next try.
    #[allow(clippy::should_implement_trait, reason = "the delays never end, so this returns no Option")]
    pub fn next(&mut self) -> Duration {
        let wait = self.0.mul_f64(rand::random_range(0.5..1.0));
        self.0 = (self.0 * 2).min(MAX_RETRY_PAUSE);
        wait
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const RETRY_FOR: Duration = Duration::from_secs(10);

    fn lost() -> Error {
        Error::new(ErrorKind::Timeout, "no answer").unanswered()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_have_been_executed_is_repeated_as_such() {
        let mut seen = Vec::new();
        let answer = retry_until_answered(RETRY_FOR, |repeat| {
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
        let answer: Result<()> = retry_until_answered(RETRY_FOR, |_| {
            tries += 1;
            ready(Err(if tries == 1 { lost() } else { Error::new(ErrorKind::OutOfMemory, "OOM") }))
        })
        .await;
        assert!(answer.unwrap_err().is_unknown());
    }

    #[tokio::test(start_paused = true)]
    async fn settling_waits_for_an_operator_too_but_not_for_the_impossible() {
        let refusals =
            [ErrorKind::ReadOnly, ErrorKind::OutOfMemory, ErrorKind::Permission, ErrorKind::WrongType];
        let (mut seen, mut logged) = (Vec::new(), 0);
        let answer = retry_settling(
            RETRY_FOR,
            |repeat| {
                seen.push(repeat);
                ready(match refusals.get(seen.len() - 1) {
                    Some(kind) => Err(Error::new(*kind, "refused")),
                    None => Ok(7),
                })
            },
            |_| logged += 1,
        );
        assert_eq!(answer.await.unwrap(), 7);
        assert_eq!((seen, logged), (vec![false, false, false, true, true], 4));
        let impossible: Result<()> =
            retry_settling(RETRY_FOR, |_| ready(Err(Error::new(ErrorKind::Server, "ERR"))), |_| ()).await;
        assert_eq!(impossible.unwrap_err().kind(), ErrorKind::Server);
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_end_after_retry_for() {
        let started = Instant::now();
        let answer: Result<()> =
            retry_until_answered(RETRY_FOR, |_| ready(Err(Error::new(ErrorKind::Unreachable, "refused"))))
                .await;
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(started.elapsed() <= RETRY_FOR);
    }
}
