//! What handles lapses: plain async functions.
//!
//! A handler is an `async fn(Lapse<T>) -> Result<Done, E>` or a closure of that
//! kind; [`Handler`] says what else may be one. `docs/handlers.md` shows how to
//! put something around it: measurements, limits, spans, or the layers of
//! `tower`. The other names here hold that together; programs rarely need them.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

pub use crate::lapse::LapseSource;
pub use crate::outcome::FailureError;

use crate::error::Error;
use crate::lapse::{About, Lapse};
use crate::outcome::{Failure, Outcome};

/// Anything that handles the lapses of one topic.
///
/// Implemented for async functions and closures from a [`Lapse`] to a
/// `Result<R, E>`, where `R` is [`Done`](crate::Done), `()` or [`Outcome`], and
/// `E` is anything that becomes a [`Failure`]: any error, `anyhow`'s and boxed
/// ones included, a `String`, a `&str`. What handlers share is given to them by
/// [`ListenerBuilder::state`](crate::ListenerBuilder::state), or captured by a
/// closure.
///
/// `K` is the kind of a function, by its argument, and is never written.
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
    /// Makes one attempt.
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

/// A handler that decodes for itself: the type of its payload is forgotten. Gives the attempt, or says why the
/// payload cannot be read.
pub(crate) type AnyHandler = Arc<dyn Fn(Arc<About>, Bytes) -> Result<Attempt, Error> + Send + Sync>;

/// An attempt, which runs when it is polled.
pub type Attempt = BoxFuture<'static, Result<Outcome, Failure>>;

/// Any handler of what this decodes.
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

/// What a lapse can be given to a handler as: itself alone.
///
/// A function's argument is found first and compared then, so that a wrong one is refused in these words.
#[diagnostic::on_unimplemented(
    message = "this handler takes `{A}`, and the lapses of its topic are `{Self}`",
    label = "this takes `{A}`",
    note = "a handler takes a `Lapse` of the topic's own payload, `{Self}` here; of an attached topic, a \
            `Lapse<Expired<T>>`"
)]
pub trait GivenAs<A> {
    /// The argument.
    fn give(self) -> A;
}

impl<A> GivenAs<A> for A {
    fn give(self) -> A {
        self
    }
}

/// What a handler may return: `Result<R, E>`, where `R` is [`Done`](crate::Done), `()` or an [`Outcome`],
/// and `E` is anything that becomes a [`Failure`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this returns `{Self}`",
    note = "a handler's result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`; `E` is `Failure`, `anyhow::Error`, \
            `Box<dyn Error + Send + Sync>`, `String`, `&str`, or any error that is `Send + Sync + 'static`"
)]
pub trait Answer {
    /// The same for all handlers.
    fn answer(self) -> Result<Outcome, Failure>;
}

// What is refused is the whole result, not the half of it that does not fit.
#[diagnostic::do_not_recommend]
impl<R: Into<Outcome>, E: Into<Failure>> Answer for Result<R, E> {
    fn answer(self) -> Result<Outcome, Failure> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// A function of one argument. `M` is `()`, and the second implementation is nobody's: as there are two to choose
/// from, the compiler says of a function with more or fewer arguments that it is no handler, which it does in our
/// words. Of a lone implementation it would say what the bound `Fn(A)` misses, in its own.
trait Function<A, M> {
    /// `A` again: known only once the function is found to be one.
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
    F::Future: Future<Output: Answer> + Send,
{
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        self.run(lapse.give()).map(Answer::answer)
    }
}

/// The state of a listener's handlers: see [`ListenerBuilder::state`](crate::ListenerBuilder::state).
///
/// A [`ListenerBuilder<State<App>>`](crate::ListenerBuilder) has handlers that may ask for an `App`.
#[derive(Clone, Debug)]
pub struct State<S>(pub(crate) S);

/// What can be given to [`ListenerBuilder::on`](crate::ListenerBuilder::on): a [`Handler`], or after
/// [`state`](crate::ListenerBuilder::state) an async function from a lapse and that state.
///
/// `S` is the builder's; `K` keeps the kinds of handlers apart. Neither is ever written.
// Without a state there is one implementation, and the compiler says what its bounds miss; of a function with
// more or fewer arguments it says this. With a state there are two implementations, and it says this of all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle lapses that carry `{T}`",
    label = "wrong arguments, a wrong payload or a wrong result",
    note = "a handler takes `Lapse<{T}>`, and after `.state(…)` on the builder it may take the state as its second \
            argument",
    note = "its result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`; `E` is `Failure` or any error; and its \
            future is `Send`"
)]
pub trait IntoHandler<T, S, K> {
    /// The kind of the handler that comes of it.
    type Kind: 'static;
    /// The handler, which has the state from now on.
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
    Fut: Future<Output: Answer> + Send + 'static,
{
    type Kind = fn(Lapse<T>);

    fn into_handler(self, State(state): &State<S>) -> impl Handler<T> {
        let state = state.clone();
        move |lapse: Lapse<T>| self(lapse, state.clone())
    }
}
