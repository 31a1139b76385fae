//! Services of `tower` as handlers, so that its layers apply.

use std::future::poll_fn;
use std::sync::Mutex;

use tower_service::Service;

use crate::handler::Handler;
use crate::lapse::Lapse;
use crate::lock::lock;
use crate::outcome::{Failure, Outcome};

/// A [`Service`] of lapses as a [`Handler`].
///
/// For each attempt the service is cloned, waited for until it is ready, and called. What is shared between
/// clones, as the permits of a concurrency limit are, is shared between attempts. Waiting is a part of the
/// attempt: it holds its lease and its permit, and the topic's timeout goes on.
///
/// ```
/// use std::time::Duration;
/// use keylapse::{Done, Lapse, Listener, Topic, tower::ServiceHandler};
/// use tower::{ServiceBuilder, service_fn};
///
/// async fn close(_order: Lapse<u64>) -> std::io::Result<Done> {
///     Ok(Done)
/// }
///
/// let close = ServiceBuilder::new().timeout(Duration::from_secs(5)).service(service_fn(close));
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// let listener = Listener::builder("redis://127.0.0.1/").on(orders, ServiceHandler::new(close)).build()?;
/// # Ok::<(), keylapse::Error>(())
/// ```
#[derive(Debug)]
pub struct ServiceHandler<S> {
    /// Many services can be sent between threads and not shared.
    service: Mutex<S>,
}

impl<S> ServiceHandler<S> {
    /// A handler that calls clones of this service.
    pub fn new(service: S) -> Self {
        Self { service: Mutex::new(service) }
    }
}

impl<T, S> Handler<T> for ServiceHandler<S>
where
    T: Send + 'static,
    S: Service<Lapse<T>, Response: Into<Outcome>, Error: Into<Failure>, Future: Send>,
    S: Clone + Send + 'static,
{
    async fn call(&self, lapse: Lapse<T>) -> Result<Outcome, Failure> {
        // The clone that said that it is ready is the one to be called.
        let mut service = lock(&self.service).clone();
        poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
        let call = service.call(lapse);
        call.await.map(Into::into).map_err(Into::into)
    }
}
