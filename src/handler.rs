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

/// A handler that decodes for itself: the type of its payload is forgotten. Gives the attempt, or says why the
/// payload cannot be read.
pub(crate) type AnyHandler = Arc<dyn Fn(Arc<About>, Bytes) -> Result<Attempt, Error> + Send + Sync>;

pub(crate) type Attempt = BoxFuture<'static, Result<Outcome, Failure>>;

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
