//! Handlers: async functions that run for each lapse.
//!
//! A handler is an `async fn(Lapse<T>) -> Result<Done, E>` or a closure of that kind; see [`Handler`].
//! `docs/handlers.md` shows how to wrap handlers with metrics, limits, spans, or layers of `tower`. Programs rarely
//! need the other items of this module.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

pub use crate::lapse::LapseSource;
pub use crate::outcome::FailureError;

use crate::error::Error;
use crate::lapse::{Lapse, LapseMetadata};
use crate::outcome::{Failure, Outcome};

/// Handles the lapses of one topic.
///
/// This trait is implemented for async functions and closures from a [`Lapse`] to a `Result<R, E>`. `R` is
/// [`Done`](crate::Done), `()` or [`Outcome`]. `E` is a type that converts to a [`Failure`]: any error, also a boxed one or
/// that of `anyhow`, a `String` or a `&str`. Handlers share state through
/// [`ListenerBuilder::state`](crate::ListenerBuilder::state), or capture it in a closure.
///
/// The compiler infers `K`, which distinguishes the argument types of functions.
///
/// ```
/// use std::sync::Arc;
/// use keylapse::handler::Handler;
/// use keylapse::{Done, Lapse};
///
/// struct Mailer;
/// impl Mailer {
///     async fn send(&self, _to: &str) -> std::io::Result<()> { Ok(()) }
/// }
///
/// fn reminders(mailer: Arc<Mailer>) -> impl Handler<String> {
///     move |lapse: Lapse<String>| {
///         let mailer = mailer.clone();
///         async move {
///             mailer.send(lapse.payload()).await.map(|()| Done)
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle lapses that carry `{T}`",
    note = "a handler is `async fn(Lapse<{T}>) -> Result<Done, E>`, or a closure that returns such a future; \
            the future must be `Send`"
)]
pub trait Handler<T, K = fn(Lapse<T>)>: Send + Sync + 'static {
    /// Runs one attempt.
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

/// A handler with an erased payload type, which decodes the payload itself. It returns the attempt, or an error if
/// the payload is undecodable.
pub(crate) type AnyHandler =
    Arc<dyn Fn(Arc<LapseMetadata>, Bytes) -> Result<AttemptFuture, Error> + Send + Sync>;

/// The future of an attempt, which starts with the first poll.
pub type AttemptFuture = BoxFuture<'static, Result<Outcome, Failure>>;

/// Erases the payload type of a handler.
pub(crate) fn erase<T: Send + 'static, K: 'static>(
    decode: impl Fn(Bytes) -> Result<T, Error> + Send + Sync + 'static,
    handler: impl Handler<T, K>,
) -> AnyHandler {
    let handler = Arc::new(handler);
    Arc::new(move |about, payload| {
        let (handler, payload) = (handler.clone(), decode(payload)?);
        Ok(async move { handler.call(Lapse { about, payload }).await }.boxed())
    })
}

/// Converts a lapse to the argument of a handler, which must be the same type.
///
/// The compiler first infers the argument of a function and then checks this bound, so a wrong argument type gets
/// this message.
#[diagnostic::on_unimplemented(
    message = "this handler takes `{A}`, and the lapses of its topic are `{Self}`",
    label = "this takes `{A}`",
    note = "a handler takes a `Lapse` of the topic's own payload, `{Self}` here; of an attached topic, a \
            `Lapse<Expired<T>>`"
)]
pub trait GivenAs<A> {
    /// Returns the argument.
    fn give(self) -> A;
}

impl<A> GivenAs<A> for A {
    fn give(self) -> A {
        self
    }
}

/// A result that a handler may return: `Result<R, E>`, where `R` is [`Done`](crate::Done), `()` or an [`Outcome`],
/// and `E` is a type that converts to a [`Failure`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this returns `{Self}`",
    note = "a handler's result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`; `E` is `Failure`, `anyhow::Error`, \
            `Box<dyn Error + Send + Sync>`, `String`, `&str`, or any error that is `Send + Sync + 'static`"
)]
pub trait IntoOutcome {
    /// Converts the result to the common type of all handlers.
    fn into_outcome(self) -> Result<Outcome, Failure>;
}

// The compiler then reports the whole result type, not only the part of it that does not fit.
#[diagnostic::do_not_recommend]
impl<R: Into<Outcome>, E: Into<Failure>> IntoOutcome for Result<R, E> {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// A function of one argument.
///
/// `M` is `()`. The second implementation applies to no type and only changes an error message. With two candidates,
/// the compiler reports that a function with a wrong number of arguments is no handler, with the message above. With
/// one candidate it would report the missing bound `Fn(A)`.
trait Function<A, M> {
    /// `A` itself, which the compiler resolves only after it has chosen an implementation.
    type Argument;
    type Future;
    fn run(&self, argument: Self::Argument) -> Self::Future;
}

impl<F: Fn(A) -> Fut, A, Fut> Function<A, ()> for F {
    type Argument = A;
    type Future = Fut;

    fn run(&self, argument: A) -> Fut {
        self(argument)
    }
}

trait Nobody {}

impl<F: Nobody, A> Function<A, Box<dyn Nobody>> for F {
    type Argument = A;
    type Future = ();

    fn run(&self, _: A) {}
}

impl<F, T, A, M> Handler<T, fn(A) -> M> for F
where
    F: Function<A, M> + Send + Sync + 'static,
    Lapse<T>: GivenAs<F::Argument>,
    F::Future: Future<Output: IntoOutcome> + Send,
{
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        self.run(lapse.give()).map(IntoOutcome::into_outcome)
    }
}

/// The state that a listener's handlers share; see [`ListenerBuilder::state`](crate::ListenerBuilder::state).
///
/// The handlers of a [`ListenerBuilder<State<App>>`](crate::ListenerBuilder) may take an `App` as their second
/// argument.
#[derive(Clone, Debug)]
pub struct State<S>(pub(crate) S);

/// A handler that [`ListenerBuilder::on`](crate::ListenerBuilder::on) accepts: a [`Handler`], or an async function
/// from a lapse and the builder's [`state`](crate::ListenerBuilder::state).
///
/// The compiler infers `S`, the state, and `K`, which distinguishes kinds of handlers.
// A builder without state has one implementation: the compiler reports its missing bounds, or this message for a
// function with a wrong number of arguments. A builder with state has two implementations, so the compiler always
// reports this message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle lapses that carry `{T}`",
    label = "wrong arguments, a wrong payload or a wrong result",
    note = "a handler takes `Lapse<{T}>`, and after `.state(…)` on the builder it may take the state as its second \
            argument",
    note = "its result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`; `E` is `Failure` or any error; and its \
            future is `Send`"
)]
pub trait IntoHandler<T, S, K> {
    /// The kind of the resulting handler.
    type Kind: 'static;
    /// Binds the state, and returns the handler.
    fn into_handler(self, state: &S) -> impl Handler<T, Self::Kind>;
}

impl<T, S, K: 'static, H: Handler<T, K>> IntoHandler<T, S, (K,)> for H {
    type Kind = K;

    fn into_handler(self, _: &S) -> impl Handler<T, K> {
        self
    }
}

impl<T, S, F, Fut> IntoHandler<T, State<S>, fn(Lapse<T>, S)> for F
where
    T: 'static,
    S: Clone + Send + Sync + 'static,
    F: Fn(Lapse<T>, S) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    type Kind = fn(Lapse<T>);

    fn into_handler(self, State(state): &State<S>) -> impl Handler<T> {
        let state = state.clone();
        move |lapse: Lapse<T>| self(lapse, state.clone())
    }
}
