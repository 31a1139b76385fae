//! One opaque error for the library, the console and the test kit.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::escape::Escaped;
use crate::id::ArmingId;
use crate::pattern::{PatternConflict, PatternError};

/// Shorthand for results with this error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, to which key or setting, and what to do about it.
///
/// One type serves the whole library; ask [`kind`](Error::kind) or the predicates
/// to tell cases apart. Cheap to clone. Messages never contain payloads or
/// passwords; keys are escaped and cut to 128 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Arc<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    key: Option<Vec<u8>>,
    arming: Option<ArmingId>,
    maybe_done: bool,
    /// The server's own word, where it has answered.
    code: Option<Box<str>>,
    redirect: Option<Redirect>,
}

/// Where else a node of a cluster sends a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// For this call alone: the slot is on its way there.
    pub once: bool,
    /// The slot that the call is about.
    pub slot: u16,
    /// As the node has written it.
    pub to: Box<str>,
}

/// The cases that a program may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A pattern, key, setting or argument that can never work.
    Invalid,
    /// A key, payload or batch over its stated limit.
    TooLarge,
    /// A payload that could not be written as or read from the topic's type.
    Payload,
    /// Two topics that can claim the same key, or share a name.
    Conflict,
    /// The server cannot be reached, or the connection broke.
    Unreachable,
    /// The server did not answer in time.
    Timeout,
    /// A call may or may not have been executed, and it is too late to ask again.
    Unknown,
    /// Wrong user or password, or no password can be had.
    Auth,
    /// No TLS session with the server: a certificate, a name, a file, or a port that speaks something else.
    Tls,
    /// The user lacks a permission (ACL).
    Permission,
    /// The server is a replica, or does not accept writes for now.
    ReadOnly,
    /// The server is over its `maxmemory`.
    OutOfMemory,
    /// The server is loading, busy with a script, or cannot persist.
    Unavailable,
    /// One of keylapse's own names in Redis holds a value of another type.
    WrongType,
    /// The topic exists with another number of partitions.
    Partitions,
    /// The topic was written by another version of the wire format.
    WireVersion,
    /// The topic is being destroyed.
    Destroying,
    /// The topic gets another number of partitions.
    Repartitioning,
    /// A topic is not destroyed or repartitioned: somebody listens, something is armed, or runs.
    InUse,
    /// The server is too old, or is not Redis or Valkey.
    Unsupported,
    /// Any other answer of the server.
    Server,
    /// A part of keylapse has panicked, or a thread cannot be had.
    Internal,
}

impl Error {
    /// An error of this kind, with a message for people.
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

    /// Marks a call that was sent and has no answer: the server may have
    /// executed it.
    #[doc(hidden)]
    pub fn unanswered(self) -> Self {
        self.with(|inner| inner.maybe_done = true)
    }

    /// Adds the code with which the server has answered.
    #[doc(hidden)]
    pub fn with_code(self, code: Option<&str>) -> Self {
        self.with(|inner| inner.code = code.map(Into::into))
    }

    /// The error code with which the server has answered; none where it did not answer.
    #[doc(hidden)]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Adds where the server wants the call to be made instead.
    pub(crate) fn with_redirect(self, redirect: Option<Redirect>) -> Self {
        self.with(|inner| inner.redirect = redirect)
    }

    /// Where the server wants the call to be made instead; nothing was executed.
    #[doc(hidden)]
    pub fn redirect(&self) -> Option<&Redirect> {
        self.0.redirect.as_ref()
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Whether the server may have executed the call.
    #[doc(hidden)]
    pub fn maybe_done(&self) -> bool {
        self.0.maybe_done
    }

    /// An error of a setting or an argument that can never work.
    #[doc(hidden)]
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Refuses the first of these rules that is not kept, in the name of what they are for.
    /// Costs nothing to speak of while all are: producers ask at each call.
    #[doc(hidden)]
    pub fn unless_kept(of: fmt::Arguments<'_>, rules: &[(bool, &str)]) -> Result<()> {
        match rules.iter().find(|(kept, _)| !kept) {
            Some((_, rule)) => Err(Self::invalid(format!("{of}: {rule}"))),
            None => Ok(()),
        }
    }

    /// Names the key that the error is about, unless one is named already.
    #[doc(hidden)]
    pub fn at_key(self, key: &[u8]) -> Self {
        self.with(|inner| {
            inner.key.get_or_insert_with(|| key.to_vec());
        })
    }

    /// Names the arming that was tried.
    #[doc(hidden)]
    pub fn of_arming(self, id: ArmingId) -> Self {
        self.with(|inner| inner.arming = Some(id))
    }

    /// Which case this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The key that the error is about, where there is one.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }

    /// The id of the arming whose outcome is unknown: a lapse that carries it
    /// came from this call.
    pub fn arming(&self) -> Option<ArmingId> {
        self.0.arming
    }

    /// Whether the same call may succeed later without any change: the server
    /// is unreachable, slow, loading, full, read-only or busy, or the topic is
    /// being destroyed or repartitioned.
    pub fn is_transient(&self) -> bool {
        use ErrorKind::{
            Destroying, OutOfMemory, ReadOnly, Repartitioning, Timeout, Unavailable, Unreachable,
        };
        matches!(
            self.kind(),
            Unreachable | Timeout | ReadOnly | OutOfMemory | Unavailable | Destroying | Repartitioning
        )
    }

    /// Whether the server is away, or serves nobody for now.
    #[doc(hidden)]
    pub fn is_away(&self) -> bool {
        self.is_of_the_line() || self.kind() == ErrorKind::Unavailable
    }

    /// Whether it is a replica's "no".
    pub(crate) fn is_of_a_replica(&self) -> bool {
        matches!(self.code(), Some("READONLY" | "MASTERDOWN"))
    }

    /// Where one server takes the place of another, a replica's "no" passes: it was the primary until just now.
    pub(crate) fn until_the_primary_is_known(mut self) -> Self {
        if self.is_of_a_replica() {
            Arc::make_mut(&mut self.0).kind = ErrorKind::Unavailable;
        }
        self
    }

    /// Whether there is no way to the server, or it does not answer. Its connections say so, once for all.
    #[doc(hidden)]
    pub fn is_of_the_line(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
    }

    /// Whether the call may have been executed although it failed.
    ///
    /// Repeating an arm, cancel or reschedule after such an error may replace or
    /// withdraw what somebody else has armed in the meantime. If the first arm has
    /// fired already, a second runs the handler once more, under another id.
    pub fn is_unknown(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }

    /// Whether an operator has to change something: a password, a certificate,
    /// a permission, a setting, a version.
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
