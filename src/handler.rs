//! Handlers: plain async functions, made alike.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Error;
use crate::lapse::{About, Lapse};
use crate::outcome::{Failure, Outcome};

/// Anything that handles the lapses of one topic.
///
/// Implemented for async functions and closures from a [`Lapse`] to a
/// `Result<R, Failure>`, where `R` is [`Done`](crate::Done), `()` or
/// [`Outcome`]. A closure captures what it needs; what is shared between
/// attempts goes into an [`Arc`].
///
/// ```
/// use std::sync::Arc;
/// use keylapse::{Done, Failure, Handler, Lapse};
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
///             mailer.send(lapse.payload()).await?;
///             Ok::<_, Failure>(Done)
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle lapses of `{T}`",
    note = "a handler is an `async fn(Lapse<{T}>) -> Result<Done, Failure>`, or a closure that returns such a future; \
            the future must be `Send`"
)]
pub trait Handler<T>: Send + Sync + 'static {
    /// Makes one attempt.
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

impl<F, Fut, T, R> Handler<T> for F
where
    F: Fn(Lapse<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send,
    R: Into<Outcome>,
{
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        self(lapse).map(|result| result.map(Into::into))
    }
}

/// A handler that decodes for itself: the type of its payload is forgotten.
pub(crate) trait AnyHandler: Send + Sync {
    /// The attempt, or why the payload cannot be read.
    fn start(self: Arc<Self>, about: Arc<About>, payload: Bytes) -> Result<Attempt, Error>;
}

pub(crate) type Attempt = BoxFuture<'static, Result<Outcome, Failure>>;

struct Typed<T, D, H> {
    decode: D,
    handler: H,
    payload: PhantomData<fn(T)>,
}

/// Any handler of what this decodes.
pub(crate) fn erase<T: Send + 'static>(
    decode: impl Fn(Bytes) -> Result<T, Error> + Send + Sync + 'static,
    handler: impl Handler<T>,
) -> Arc<dyn AnyHandler> {
    Arc::new(Typed { decode, handler, payload: PhantomData })
}

impl<T, D, H> AnyHandler for Typed<T, D, H>
where
    T: Send + 'static,
    D: Fn(Bytes) -> Result<T, Error> + Send + Sync + 'static,
    H: Handler<T>,
{
    fn start(self: Arc<Self>, about: Arc<About>, payload: Bytes) -> Result<Attempt, Error> {
        let payload = (self.decode)(payload)?;
        Ok(async move { self.handler.call(Lapse { about, payload }).await }.boxed())
    }
}
