//! Services of `tower` as handlers, for its layers.

use std::future::poll_fn;
use std::sync::Mutex;

use tower_service::Service;

use crate::handler::Handler;
use crate::lapse::Lapse;
use crate::lock::lock;
use crate::outcome::{Failure, Outcome};

/// A [`Handler`] that calls a [`Service`] of lapses.
///
/// Each attempt clones the service, waits until the clone is ready, and calls it. Attempts share the state that clones
/// share, such as a concurrency limit. The wait is a part of the attempt: it takes a concurrency slot and counts towards
/// the topic's timeout.
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
    /// Many services are `Send` but not `Sync`.
    service: Mutex<S>,
}

impl<S> ServiceHandler<S> {
    /// Returns a handler that calls clones of this service.
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
        // A service must be called on the same clone that was polled until it was ready.
        let mut service = lock(&self.service).clone();
        poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
        let call = service.call(lapse);
        call.await.map(Into::into).map_err(Into::into)
    }
}
