//! The HTTP client, which repeats a call if the receiver closed its idle connection.

use std::collections::HashSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::Extensions;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};

use super::class::CallClass;
use super::resolve::FilteringResolver;
use super::{AGENT, Settings};

/// How long an idle connection is kept. Many receivers close theirs after five seconds.
const IDLE: Duration = Duration::from_secs(4);

/// One client that keeps idle connections, and one that does not.
#[derive(Debug)]
pub(super) struct Clients {
    keeping: Client,
    fresh: Client,
    timeout: Duration,
    answered: AnsweredConnections,
}

impl Clients {
    pub(super) fn new(settings: &Settings, resolver: FilteringResolver) -> Result<Self, String> {
        let resolver = Arc::new(resolver);
        let build = |keeps: usize| {
            let client = common(settings).dns_resolver(Arc::clone(&resolver)).pool_max_idle_per_host(keeps);
            client.build().map_err(|error| format!("cannot create the HTTP client: {error}"))
        };
        Ok(Self {
            keeping: build(settings.per_host)?,
            fresh: build(0)?,
            timeout: settings.timeout,
            answered: AnsweredConnections::default(),
        })
    }

    /// Sends a request. If a connection that was used before breaks without an answer, the receiver has most likely closed
    /// it for being idle. The request is then sent once more. The receiver may take both, which have the same ID.
    pub(super) async fn send(
        &self,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> reqwest::Result<Response> {
        let began = Instant::now();
        let sent = request(&self.keeping).send().await;
        match &sent {
            Ok(response) => self.answered.note(response),
            Err(error)
                if CallClass::of_error(error) == CallClass::ConnectionLost && self.answered.has(error) =>
            {
                let left = self.timeout.saturating_sub(began.elapsed());
                return request(&self.fresh).timeout(left).send().await;
            }
            Err(_) => {}
        }
        sent
    }
}

fn common(settings: &Settings) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(settings.tls.clone())
        .redirect(Policy::none())
        .no_proxy()
        .user_agent(AGENT)
        .connect_timeout(settings.timeout)
        .timeout(settings.timeout)
        .pool_idle_timeout(IDLE)
}

/// The local addresses of connections that have answered.
///
/// The system reuses an address for another connection, so the set is no larger than the number of ports. If that connection
/// breaks before its first answer, it is mistaken for the earlier one, and costs one more call.
#[derive(Debug, Default)]
struct AnsweredConnections(Mutex<HashSet<SocketAddr>>);

impl AnsweredConnections {
    fn note(&self, response: &Response) {
        if let Some(info) = response.extensions().get::<HttpInfo>() {
            self.all().insert(info.local_addr());
        }
    }

    fn has(&self, error: &reqwest::Error) -> bool {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<legacy::Error>());
        let mut extras = Extensions::new();
        if let Some(connected) = cause.and_then(legacy::Error::connect_info) {
            connected.get_extras(&mut extras);
        }
        extras.get::<HttpInfo>().is_some_and(|info| self.all().remove(&info.local_addr()))
    }

    fn all(&self) -> MutexGuard<'_, HashSet<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
