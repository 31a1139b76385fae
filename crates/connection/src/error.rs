//! The error type of the library, the console and the test kit.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::escape::Escaped;
use crate::id::ArmingId;
use crate::pattern::{PatternConflict, PatternError};

/// A result with [`Error`] as its error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with a message that names what failed, why, and what to do.
///
/// The whole library uses this type. [`kind`](Error::kind) and the predicates distinguish the cases. Cloning is cheap.
/// Messages never contain payloads or passwords; keys are escaped and cut to 128 bytes.
///
/// ```
/// # use keylapse_connection as keylapse;
/// use keylapse::{Error, pattern::Pattern};
///
/// /// Returns whether to repeat the arm of an order's timer.
/// fn repeat(error: &Error) -> bool {
///     if error.is_unknown() {
///         println!("the order may have a timer: {error}"); // the answer was lost
///     }
///     error.is_transient()
/// }
/// let invalid = Error::from(Pattern::new("order-{id}").unwrap_err());
/// assert!(!repeat(&invalid));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Arc<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    key: Option<Vec<u8>>,
    arming: Option<ArmingId>,
    maybe_done: bool,
    /// The error code of the server's answer, if the server answered.
    code: Option<Box<str>>,
    redirect: Option<Redirect>,
}

/// The node to which another node of a cluster redirects a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// True if the redirect is for this call only (`ASK`), as the slot is being migrated.
    pub once: bool,
    /// The slot of the call.
    pub slot: u16,
    /// The address, as the node wrote it.
    pub to: Box<str>,
}

/// The kind of an [`Error`], for programs that treat some errors differently.
///
/// ```
/// # use keylapse_connection as keylapse;
/// use keylapse::ErrorKind;
///
/// /// Returns the HTTP status of an order whose timer could not be armed.
/// fn status(kind: ErrorKind) -> u16 {
///     match kind {
///         ErrorKind::Invalid | ErrorKind::TooLarge => 400,
///         ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::OutOfMemory => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(status(ErrorKind::Timeout), 503);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A pattern, key, setting or argument is invalid.
    Invalid,
    /// A key, payload or batch exceeds its limit.
    TooLarge,
    /// A payload cannot be encoded from, or decoded into, the topic's type.
    Payload,
    /// Two topics match the same key, or have the same name.
    Conflict,
    /// The server cannot be reached, or the connection broke.
    Unreachable,
    /// The server did not answer in time.
    Timeout,
    /// The outcome of a call is unknown: the server may have executed it, and the time for repeats is over.
    Unknown,
    /// The user or the password is wrong, or the password cannot be read.
    Auth,
    /// No TLS session with the server is possible, because of a certificate, a name, a file, or a port without TLS.
    Tls,
    /// The user's ACL lacks a permission.
    Permission,
    /// The server is a replica, or temporarily refuses writes.
    ReadOnly,
    /// The server has reached its `maxmemory`.
    OutOfMemory,
    /// The server is loading its data, busy with a script, or cannot persist.
    Unavailable,
    /// A name of keylapse in Redis holds a value of another type.
    WrongType,
    /// The topic exists with another number of partitions.
    Partitions,
    /// The topic was written by another version of the wire format.
    WireVersion,
    /// The topic is being destroyed.
    Destroying,
    /// The topic is being repartitioned.
    Repartitioning,
    /// The topic cannot be destroyed or repartitioned: it has a listener, an armed timer, or a running attempt.
    InUse,
    /// The server is too old, or is not Redis or Valkey.
    Unsupported,
    /// The server answered with another error.
    Server,
    /// A part of keylapse panicked, or a thread could not be created.
    Internal,
}

impl Error {
    /// Creates an error of a kind, with a message for people.
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self(Arc::new(Inner {
            kind,
            message,
            key: None,
            arming: None,
            maybe_done: false,
            code: None,
            redirect: None,
        }))
    }

    /// Marks the error of a call that was sent and has no answer. The server may have executed it.
    #[doc(hidden)]
    pub fn unanswered(self) -> Self {
        self.with(|inner| inner.maybe_done = true)
    }

    /// Adds the error code of the server's answer.
    #[doc(hidden)]
    pub fn with_code(self, code: Option<&str>) -> Self {
        self.with(|inner| inner.code = code.map(Into::into))
    }

    /// Returns the error code of the server's answer, or `None` if the server did not answer.
    #[doc(hidden)]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Adds the node to which the server redirects the call.
    pub(crate) fn with_redirect(self, redirect: Option<Redirect>) -> Self {
        self.with(|inner| inner.redirect = redirect)
    }

    /// Returns the node to which the server redirects the call. The server did not execute the call.
    #[doc(hidden)]
    pub fn redirect(&self) -> Option<&Redirect> {
        self.0.redirect.as_ref()
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Returns whether the server may have executed the call.
    #[doc(hidden)]
    pub fn maybe_done(&self) -> bool {
        self.0.maybe_done
    }

    /// Creates an error for an invalid setting or argument.
    #[doc(hidden)]
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Checks rules, each a condition with a message.
    ///
    /// # Errors
    /// The message of the first rule that is broken, after `of`. Formatting happens only then, as producers check each call.
    #[doc(hidden)]
    pub fn unless_kept(of: fmt::Arguments<'_>, rules: &[(bool, &str)]) -> Result<()> {
        match rules.iter().find(|(kept, _)| !kept) {
            Some((_, rule)) => Err(Self::invalid(format!("{of}: {rule}"))),
            None => Ok(()),
        }
    }

    /// Adds the key of the failed operation, unless the error has a key.
    #[doc(hidden)]
    pub fn at_key(self, key: &[u8]) -> Self {
        self.with(|inner| {
            inner.key.get_or_insert_with(|| key.to_vec());
        })
    }

    /// Adds the ID of the attempted arming.
    #[doc(hidden)]
    pub fn of_arming(self, id: ArmingId) -> Self {
        self.with(|inner| inner.arming = Some(id))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the key of the failed operation, if it has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }

    /// Returns the ID of the arming whose outcome is unknown. A lapse with this ID comes from this call.
    pub fn arming(&self) -> Option<ArmingId> {
        self.0.arming
    }

    /// Returns whether an identical call may succeed later: the server is unreachable, slow, loading, full, read-only or
    /// busy, or the topic is being destroyed or repartitioned.
    pub fn is_transient(&self) -> bool {
        use ErrorKind::{
            Destroying, OutOfMemory, ReadOnly, Repartitioning, Timeout, Unavailable, Unreachable,
        };
        matches!(
            self.kind(),
            Unreachable | Timeout | ReadOnly | OutOfMemory | Unavailable | Destroying | Repartitioning
        )
    }

    /// Returns whether the server cannot be reached, or temporarily serves no calls.
    #[doc(hidden)]
    pub fn is_server_unavailable(&self) -> bool {
        self.is_connection_error() || self.kind() == ErrorKind::Unavailable
    }

    /// Returns whether a replica refused the call.
    pub(crate) fn is_of_a_replica(&self) -> bool {
        matches!(self.code(), Some("READONLY" | "MASTERDOWN"))
    }

    /// Makes a replica's refusal transient. With Sentinel or a cluster, the server was the primary until a failover, and the
    /// next try finds the new one.
    pub(crate) fn transient_during_failover(mut self) -> Self {
        if self.is_of_a_replica() {
            Arc::make_mut(&mut self.0).kind = ErrorKind::Unavailable;
        }
        self
    }

    /// Returns whether the server cannot be reached, or did not answer in time. Connections log this once for all their
    /// users.
    #[doc(hidden)]
    pub fn is_connection_error(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
    }

    /// Returns whether the call may have been executed although it failed.
    ///
    /// Repeating an arm, cancel or reschedule after this error may replace or cancel a timer that another program has armed
    /// since. If the first arm has already fired, a second arm runs the handler once more, under another ID.
    pub fn is_unknown(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }

    /// Returns whether an operator has to change something: a password, a certificate, a permission, a setting or a version.
    pub fn needs_operator(&self) -> bool {
        use ErrorKind::{Auth, Partitions, Permission, Tls, Unsupported, WireVersion, WrongType};
        matches!(self.kind(), Auth | Tls | Permission | WrongType | Partitions | WireVersion | Unsupported)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(key) = &self.0.key {
            write!(f, " (key {})", Escaped(key))?;
        }
        match self.0.arming {
            Some(arming) => write!(f, " (arming {arming})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.0.kind)
    }
}

impl std::error::Error for Error {}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<PatternError> for Error {
    fn from(error: PatternError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<PatternConflict> for Error {
    fn from(conflict: PatternConflict) -> Self {
        Self::new(ErrorKind::Conflict, conflict.to_string())
    }
}
