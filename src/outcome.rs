//! What a handler can say at the end of an attempt; and a failure as an error, for functions that return other errors.

use std::error::Error;
use std::fmt;
use std::iter::successors;
use std::time::Duration;

use crate::escape::{continued, text_of};

/// The attempt went well.
///
/// What most handlers return: `Ok(Done)`. Others return an [`Outcome`], or `()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done;

/// How an attempt that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The timer is finished.
    Done,
    /// Finished, and to run again after this long, as a new arming whose
    /// attempts start over: a recurring timer.
    Again(Duration),
    /// Not now: the same attempt again after this long. Uses up no attempt, but
    /// a topic limits how often a timer can be snoozed.
    Snooze(Duration),
    /// Finished without having done anything; counted apart.
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

/// Why an attempt failed, and whether there is to be another.
///
/// Any error becomes a failure through `?` and is retried by the topic's
/// policy: what implements [`Error`](std::error::Error) (with `Send`, `Sync` and
/// `'static`), `anyhow`'s and boxed ones, a `String`, a `&str`. A handler may as
/// well return one of these itself. Its text is kept, with those of up to a hundred
/// causes, cut in the middle to 512 bytes, in the timer's history and its dead letter,
/// and logged, cut to 1 KiB: do not put secrets there.
///
/// `Failure` is no `Error` itself; [`into_error`](Self::into_error) makes it one
/// where a function returns other errors, and it is found again inside of them.
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
    pub(crate) then: Then,
    pub(crate) error: String,
}

/// What is to follow a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    ByPolicy,
    /// By the policy, but not before this long.
    NoSooner(Duration),
    After(Duration),
    Dead,
}

impl Then {
    /// How long the next attempt has to wait, whatever the policy says.
    pub(crate) fn least(self) -> Duration {
        match self {
            Self::NoSooner(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}

impl Failure {
    /// Retried by the topic's policy.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self { then: Then::ByPolicy, error: text_of(error) }
    }

    /// Retried after this long, if the policy allows another attempt.
    pub fn retry_after(delay: Duration, error: impl fmt::Display) -> Self {
        Self { then: Then::After(delay), error: text_of(error) }
    }

    /// Retried by the topic's policy, but not before this long. It is for what a service asks for, as by `Retry-After`:
    /// that can put the next attempt off, and cannot bring it forward.
    pub fn retry_no_sooner(delay: Duration, error: impl fmt::Display) -> Self {
        Self { then: Then::NoSooner(delay), error: text_of(error) }
    }

    /// Permanent: the timer ends in the dead letters.
    pub fn dead(error: impl fmt::Display) -> Self {
        Self { then: Then::Dead, error: text_of(error) }
    }

    /// Whether there is to be no other attempt, whatever the policy says.
    pub fn is_permanent(&self) -> bool {
        self.then == Then::Dead
    }

    /// After how long the next attempt was asked for, by [`retry_after`](Self::retry_after);
    /// `None` leaves it to the policy, or there is to be none.
    pub fn delay(&self) -> Option<Duration> {
        match self.then {
            Then::After(delay) => Some(delay),
            Then::ByPolicy | Then::NoSooner(_) | Then::Dead => None,
        }
    }

    /// Returns what went wrong; a text of more than 8 KiB without its middle.
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

/// Causes that are looked at: those of an error may go round.
const CAUSES: usize = 100;

/// A [`Failure`] that can travel inside any other error: `anyhow`'s, a boxed one, one of your own.
///
/// It becomes that failure again when a handler returns what it is in, with the text of all of it. Made by
/// [`Failure::into_error`].
#[derive(Debug)]
pub struct FailureError(Failure);

impl Failure {
    /// This failure as an [`Error`], for functions that do not return a `Failure`.
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
    /// What is to follow. It is a cause of its own, because some wrappers show an error's causes and hide
    /// the error itself: so do `anyhow`'s box and `std::io::Error`.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        (self.0.then != Then::ByPolicy).then_some(&self.0.then)
    }
}

impl fmt::Display for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPolicy => f.write_str("to be retried by the policy"),
            Self::NoSooner(delay) => write!(f, "to be retried by the policy, in {delay:?} at the earliest"),
            Self::After(delay) => write!(f, "to be retried in {delay:?}"),
            Self::Dead => f.write_str("permanent"),
        }
    }
}

impl Error for Then {}

impl From<Failure> for FailureError {
    fn from(failure: Failure) -> Self {
        failure.into_error()
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    /// Retried by the policy, unless there is a [`FailureError`] among the causes. The message has all
    /// causes, up to a hundred; one that its effect has quoted already is not repeated.
    fn from(error: E) -> Self {
        let error = error.into();
        let mut failure = Self::retry(&error);
        for cause in successors(error.source(), |&cause| cause.source()).take(CAUSES) {
            if let Some(then) = cause.downcast_ref::<Then>() {
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

/// Whether an error's text ends with its cause's, as many do.
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

    /// An error of a program, with a cause that it may quote.
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

    /// What `?` makes of an error.
    fn asked<E: Into<Failure>>(error: E) -> (Then, String) {
        let failure: Failure = error.into();
        (failure.then, failure.error)
    }

    fn by_policy(text: &str) -> (Then, String) {
        (Then::ByPolicy, text.to_owned())
    }

    fn dead(text: &str) -> (Then, String) {
        (Then::Dead, text.to_owned())
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
        let after = (Then::After(Duration::from_secs(5)), "paying: busy".to_owned());
        assert_eq!(asked(anyhow::Error::new(busy().into_error()).context("paying")), after);
        let failure: Failure = io::Error::other(busy().into_error()).into();
        assert_eq!((failure.delay(), failure.is_permanent()), (Some(Duration::from_secs(5)), false));
        let busy = Failure::retry_no_sooner(Duration::from_secs(5), "busy");
        let failure: Failure = io::Error::other(busy.into_error()).into();
        assert_eq!(failure.then, Then::NoSooner(Duration::from_secs(5)));
        assert_eq!((failure.delay(), failure.is_permanent()), (None, false));
    }

    #[test]
    fn a_failure_can_be_read_and_printed() {
        let failure = Failure::dead("closed");
        assert_eq!((failure.is_permanent(), failure.delay(), failure.message()), (true, None, "closed"));
        assert_eq!(failure.to_string(), "closed");
        assert_eq!(format!("{:#}", anyhow::Error::new(failure.into_error())), "closed: permanent");
        let failure = Failure::retry_after(Duration::from_secs(5), "busy").into_error();
        assert_eq!(format!("{:#}", anyhow::Error::new(failure)), "busy: to be retried in 5s");
        assert_eq!(format!("{:#}", anyhow::Error::new(Failure::retry("busy").into_error())), "busy");
    }
}
