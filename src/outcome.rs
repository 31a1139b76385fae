//! Results of handlers, and failures as errors for functions that return other errors.

use std::error::Error;
use std::fmt;
use std::iter::successors;
use std::time::Duration;

use crate::escape::{continued, text_of};

/// The result of a successful attempt.
///
/// Most handlers return `Ok(Done)`. A handler may also return `()` or an [`Outcome`].
///
/// ```
/// use keylapse::{Done, Lapse, Outcome};
///
/// async fn close(order: Lapse<u64>) -> std::io::Result<Done> {
///     println!("order {:?} is closed: {} cents were not paid", order.capture("id"), order.payload());
///     Ok(Done)
/// }
/// assert_eq!(Outcome::from(Done), Outcome::Done);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done;

/// The result of an attempt that did not fail.
///
/// ```
/// use std::time::Duration;
/// use keylapse::{Lapse, Outcome};
///
/// # enum Payment { Received, Pending, Missing }
/// # async fn payment_of(_: &Lapse<u64>) -> std::io::Result<Payment> { Ok(Payment::Missing) }
/// async fn remind(invoice: Lapse<u64>) -> std::io::Result<Outcome> {
///     Ok(match payment_of(&invoice).await? {
///         Payment::Received => Outcome::Drop, // no reminder is necessary
///         Payment::Pending => Outcome::Snooze(Duration::from_secs(3600)), // checks again in an hour
///         Payment::Missing => Outcome::Again(Duration::from_secs(7 * 86_400)), // reminds again in a week
///     })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The timer is finished.
    Done,
    /// The timer is finished, and runs again after this time: a recurring timer. The recurrence is a new arming with
    /// new attempts.
    Again(Duration),
    /// Runs the same attempt again after this time. This uses up no attempt, but
    /// [`max_snoozes`](crate::Topic::max_snoozes) limits how often a timer may be snoozed.
    Snooze(Duration),
    /// The timer is finished without work to do. Statistics count it separately.
    Drop,
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Done> for Outcome {
    fn from(Done: Done) -> Self {
        Self::Done
    }
}

/// Why an attempt failed, and whether another attempt follows.
///
/// The operator `?` converts an error to a failure that is retried by the topic's policy. The error may be any
/// [`Error`](std::error::Error) that is `Send`, `Sync` and `'static`, an `anyhow` error, a boxed error, a `String` or a
/// `&str`. A handler may also return these types instead of `Failure`.
///
/// The timer's history and its dead letter keep the text of the error and of up to 100 causes. A text of more than 512
/// bytes loses its middle there. The log has up to 1 KiB of it. Errors must therefore not contain secrets.
///
/// `Failure` does not implement `Error`. In functions that return other errors, [`into_error`](Self::into_error) converts it
/// to one, and the handler's result is then this failure again.
///
/// ```
/// use std::time::Duration;
/// use keylapse::{Done, Failure, Lapse};
///
/// async fn notify(lapse: Lapse<String>) -> Result<Done, Failure> {
///     let url = lapse.payload();
///     if !url.starts_with("https://") {
///         return Err(Failure::dead("not an https address")); // never again
///     }
///     let port: u16 = url.rsplit(':').next().unwrap_or("443").parse()?; // by policy
///     if port < 1024 {
///         return Err(Failure::retry_after(Duration::from_secs(5), "busy"));
///     }
///     Ok(Done)
/// }
/// ```
pub struct Failure {
    pub(crate) then: RetryDecision,
    pub(crate) error: String,
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    ByPolicy,
    /// By the policy, but after this time at the earliest.
    NoSooner(Duration),
    After(Duration),
    Dead,
}

impl RetryDecision {
    /// Returns the shortest delay before the next attempt, regardless of the policy.
    pub(crate) fn least(self) -> Duration {
        match self {
            Self::NoSooner(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}

impl Failure {
    /// Returns a failure that is retried by the topic's policy.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self { then: RetryDecision::ByPolicy, error: text_of(error) }
    }

    /// Returns a failure that is retried after `delay`, if the policy allows another attempt.
    pub fn retry_after(delay: Duration, error: impl fmt::Display) -> Self {
        Self { then: RetryDecision::After(delay), error: text_of(error) }
    }

    /// Returns a failure that is retried by the topic's policy, but after `delay` at the earliest. Use it for
    /// `Retry-After` and similar requests: they can delay the next attempt, but not advance it.
    pub fn retry_no_sooner(delay: Duration, error: impl fmt::Display) -> Self {
        Self { then: RetryDecision::NoSooner(delay), error: text_of(error) }
    }

    /// Returns a permanent failure: the timer becomes a dead letter.
    pub fn dead(error: impl fmt::Display) -> Self {
        Self { then: RetryDecision::Dead, error: text_of(error) }
    }

    /// Returns whether the failure is permanent, so that no attempt follows.
    pub fn is_permanent(&self) -> bool {
        self.then == RetryDecision::Dead
    }

    /// Returns the delay of [`retry_after`](Self::retry_after), or `None` for other failures.
    pub fn delay(&self) -> Option<Duration> {
        match self.then {
            RetryDecision::After(delay) => Some(delay),
            RetryDecision::ByPolicy | RetryDecision::NoSooner(_) | RetryDecision::Dead => None,
        }
    }

    /// Returns the text of the error. A text of more than 8 KiB lacks its middle.
    pub fn message(&self) -> &str {
        &self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({:?}: {})", self.then, self.error)
    }
}

/// The maximum number of causes that are read, because a chain of causes may be circular.
const CAUSES: usize = 100;

/// A [`Failure`] as an [`Error`], which other errors may contain: an `anyhow` error, a boxed error or your own type.
///
/// [`Failure::into_error`] creates it. If a handler returns an error that contains it, the attempt ends with this
/// failure and the text of the whole error.
#[derive(Debug)]
pub struct FailureError(Failure);

impl Failure {
    /// Converts this failure to an [`Error`], for functions that do not return a `Failure`.
    ///
    /// ```
    /// use anyhow::{Context, bail};
    /// use keylapse::{Done, Failure, Lapse};
    ///
    /// fn account(merchant: &str) -> anyhow::Result<u64> {
    ///     if merchant.is_empty() {
    ///         bail!(Failure::dead("the merchant has closed").into_error()); // never again
    ///     }
    ///     Ok(merchant.parse()?) // by policy
    /// }
    ///
    /// async fn pay(lapse: Lapse<String>) -> anyhow::Result<Done> {
    ///     let account = account(lapse.payload()).context("no account")?;
    ///     println!("paid to {account}");
    ///     Ok(Done)
    /// }
    ///
    /// let failure = Failure::from(account("").context("no account").unwrap_err());
    /// assert!(failure.is_permanent());
    /// assert_eq!(failure.message(), "no account: the merchant has closed");
    /// ```
    pub fn into_error(self) -> FailureError {
        FailureError(self)
    }
}

impl fmt::Display for FailureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for FailureError {
    /// Returns the consequence as a cause of its own. Some wrappers show an error's causes but hide the error itself,
    /// such as the box of `anyhow` and `std::io::Error`.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        (self.0.then != RetryDecision::ByPolicy).then_some(&self.0.then)
    }
}

impl fmt::Display for RetryDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPolicy => f.write_str("retried by the policy"),
            Self::NoSooner(delay) => write!(f, "retried by the policy, after {delay:?} at the earliest"),
            Self::After(delay) => write!(f, "retried after {delay:?}"),
            Self::Dead => f.write_str("permanent"),
        }
    }
}

impl Error for RetryDecision {}

impl From<Failure> for FailureError {
    fn from(failure: Failure) -> Self {
        failure.into_error()
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    /// Converts an error to a failure that is retried by the policy, or to the [`FailureError`] among its causes. The
    /// message includes up to 100 causes, without those that an error already quotes.
    fn from(error: E) -> Self {
        let error = error.into();
        let mut failure = Self::retry(&error);
        for cause in successors(error.source(), |&cause| cause.source()).take(CAUSES) {
            if let Some(then) = cause.downcast_ref::<RetryDecision>() {
                failure.then = *then;
                break;
            }
            let cause = text_of(cause);
            if !quotes(&failure.error, &cause) {
                failure.error = continued(failure.error, &format!(": {cause}"));
            }
        }
        failure
    }
}

/// Returns whether an error's text ends with the text of its cause.
fn quotes(text: &str, cause: &str) -> bool {
    text.strip_suffix(cause).is_some_and(|before| !before.ends_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use anyhow::Context;

    use super::*;

    type Boxed = Box<dyn Error + Send + Sync>;

    /// An error with a cause, which its text may quote.
    #[derive(Debug)]
    struct Wrapped {
        quotes: bool,
        cause: Boxed,
    }

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.quotes { write!(f, "no answer: {}", self.cause) } else { f.write_str("no answer") }
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.cause)
        }
    }

    fn wrapped(cause: impl Into<Boxed>) -> Wrapped {
        Wrapped { quotes: false, cause: cause.into() }
    }

    /// Converts an error as `?` does.
    fn asked<E: Into<Failure>>(error: E) -> (RetryDecision, String) {
        let failure: Failure = error.into();
        (failure.then, failure.error)
    }

    fn by_policy(text: &str) -> (RetryDecision, String) {
        (RetryDecision::ByPolicy, text.to_owned())
    }

    fn dead(text: &str) -> (RetryDecision, String) {
        (RetryDecision::Dead, text.to_owned())
    }

    fn closed() -> FailureError {
        Failure::dead("closed").into_error()
    }

    #[test]
    fn any_error_is_retried_by_the_policy() {
        assert_eq!(asked("busy"), by_policy("busy"));
        assert_eq!(asked("busy".to_owned()), by_policy("busy"));
        assert_eq!(asked(io::Error::other("busy")), by_policy("busy"));
        assert_eq!(asked(Boxed::from("busy")), by_policy("busy"));
        assert_eq!(asked(Boxed::from(io::Error::other("busy"))), by_policy("busy"));
        assert_eq!(asked(anyhow::anyhow!("busy")), by_policy("busy"));
        assert_eq!(asked(anyhow::Error::new(io::Error::other("busy"))), by_policy("busy"));
        assert_eq!(asked(Failure::retry("busy")), by_policy("busy"));
        assert_eq!(asked(Failure::retry("busy").into_error()), by_policy("busy"));
        assert_eq!(asked(crate::Error::invalid("busy")), by_policy("busy"));
    }

    #[test]
    fn causes_are_kept_and_none_is_doubled() {
        let cause = || io::Error::other("busy");
        assert_eq!(asked(wrapped(cause())), by_policy("no answer: busy"));
        assert_eq!(asked(Boxed::from(wrapped(cause()))), by_policy("no answer: busy"));
        assert_eq!(asked(anyhow::Error::new(wrapped(cause()))), by_policy("no answer: busy"));
        assert_eq!(asked(Wrapped { quotes: true, cause: cause().into() }), by_policy("no answer: busy"));
        assert_eq!(asked(io::Error::other(wrapped(cause()))), by_policy("no answer: busy"));
        assert!(quotes("no answer: busy", "busy") && quotes("busy", "busy") && !quotes("code 15", "5"));
        let under_context = Err::<(), _>(cause()).context("asking").context("paying").unwrap_err();
        assert_eq!(asked(under_context), by_policy("paying: asking: busy"));
        let message = anyhow::anyhow!("busy").context("asking");
        assert_eq!(asked(message), by_policy("asking: busy"));
    }

    #[test]
    fn a_failure_is_found_at_the_top() {
        assert_eq!(asked(Failure::dead("closed")), dead("closed"));
        assert_eq!(asked(closed()), dead("closed"));
        assert_eq!(asked(Boxed::from(closed())), dead("closed"));
        assert_eq!(asked(anyhow::Error::new(closed())), dead("closed"));
        assert_eq!(asked(anyhow::Error::from_boxed(closed().into())), dead("closed"));
        assert_eq!(asked(Boxed::from(anyhow::Error::new(closed()))), dead("closed"));
        assert_eq!(asked(io::Error::other(closed())), dead("closed"));
    }

    #[test]
    fn a_failure_is_found_under_context() {
        assert_eq!(asked(anyhow::Error::new(closed()).context("paying")), dead("paying: closed"));
        assert_eq!(asked(closed_under_context()), dead("paying: asking: closed"));
        assert_eq!(asked(Boxed::from(closed_under_context())), dead("paying: asking: closed"));
        assert_eq!(asked(wrapped(closed())), dead("no answer: closed"));
        assert_eq!(asked(wrapped(closed_under_context())), dead("no answer: paying: asking: closed"));
        assert_eq!(asked(anyhow::Error::new(wrapped(closed()))), dead("no answer: closed"));
        let quoting = Wrapped { quotes: true, cause: closed().into() };
        assert_eq!(asked(quoting), dead("no answer: closed"));
    }

    fn closed_under_context() -> anyhow::Error {
        Err::<(), _>(closed()).context("asking").context("paying").unwrap_err()
    }

    #[test]
    fn a_failure_passes_through_a_function_of_other_errors() {
        fn check() -> Result<(), Failure> {
            Err(Failure::dead("closed"))
        }
        fn pay() -> Result<(), FailureError> {
            Ok(check()?)
        }
        assert_eq!(asked(pay().unwrap_err()), dead("closed"));
    }

    #[test]
    fn the_delay_that_was_asked_for_is_found_too() {
        let busy = || Failure::retry_after(Duration::from_secs(5), "busy");
        let after = (RetryDecision::After(Duration::from_secs(5)), "paying: busy".to_owned());
        assert_eq!(asked(anyhow::Error::new(busy().into_error()).context("paying")), after);
        let failure: Failure = io::Error::other(busy().into_error()).into();
        assert_eq!((failure.delay(), failure.is_permanent()), (Some(Duration::from_secs(5)), false));
        let busy = Failure::retry_no_sooner(Duration::from_secs(5), "busy");
        let failure: Failure = io::Error::other(busy.into_error()).into();
        assert_eq!(failure.then, RetryDecision::NoSooner(Duration::from_secs(5)));
        assert_eq!((failure.delay(), failure.is_permanent()), (None, false));
    }

    #[test]
    fn a_failure_can_be_read_and_printed() {
        let failure = Failure::dead("closed");
        assert_eq!((failure.is_permanent(), failure.delay(), failure.message()), (true, None, "closed"));
        assert_eq!(failure.to_string(), "closed");
        assert_eq!(format!("{:#}", anyhow::Error::new(failure.into_error())), "closed: permanent");
        let failure = Failure::retry_after(Duration::from_secs(5), "busy").into_error();
        assert_eq!(format!("{:#}", anyhow::Error::new(failure)), "busy: retried after 5s");
        assert_eq!(format!("{:#}", anyhow::Error::new(Failure::retry("busy").into_error())), "busy");
    }
}
