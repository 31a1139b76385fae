//! What handles lapses: plain async functions.
//!
//! A handler is an `async fn(Lapse<T>) -> Result<Done, E>` or a closure of that
//! kind; [`Handler`] says what else may be one. `docs/handlers.md` shows how to
//! put something around it: measurements, limits, spans, or the layers of
//! `tower`. The other names here hold that together; programs rarely need them.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

mod function;
mod state;

pub use function::{Answer, GivenAs};
pub use state::{IntoHandler, State};

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
/// use keylapse::{Done, Handler, Lapse};
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

/// A handler that decodes for itself: the type of its payload is forgotten.
pub(crate) trait AnyHandler: Send + Sync {
    /// The attempt, or why the payload cannot be read.
    fn start(self: Arc<Self>, about: Arc<About>, payload: Bytes) -> Result<Attempt, Error>;
}

pub(crate) type Attempt = BoxFuture<'static, Result<Outcome, Failure>>;

struct Typed<T, K, D, H> {
    decode: D,
    handler: H,
    kind: PhantomData<fn(T, K)>,
}

/// Any handler of what this decodes.
pub(crate) fn erase<T: Send + 'static, K: 'static>(
    decode: impl Fn(Bytes) -> Result<T, Error> + Send + Sync + 'static,
    handler: impl Handler<T, K>,
) -> Arc<dyn AnyHandler> {
    Arc::new(Typed { decode, handler, kind: PhantomData })
}

impl<T, K, D, H> AnyHandler for Typed<T, K, D, H>
where
    T: Send + 'static,
    K: 'static,
    D: Fn(Bytes) -> Result<T, Error> + Send + Sync + 'static,
    H: Handler<T, K>,
{
    fn start(self: Arc<Self>, about: Arc<About>, payload: Bytes) -> Result<Attempt, Error> {
        let payload = (self.decode)(payload)?;
        Ok(async move { self.handler.call(Lapse { about, payload }).await }.boxed())
    }
}
