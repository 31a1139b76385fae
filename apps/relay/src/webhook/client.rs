//! The HTTP client, and connections that were closed just as they were used again.

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

use super::class::Class;
use super::resolve::Checked;
use super::{AGENT, Settings};

/// How long a connection is kept that nobody uses. Many receivers close theirs after five seconds.
const IDLE: Duration = Duration::from_secs(4);

/// One that keeps connections, and one that does not.
#[derive(Debug)]
pub(super) struct Clients {
    keeping: Client,
    fresh: Client,
    timeout: Duration,
    answered: Answered,
}

impl Clients {
    pub(super) fn new(settings: &Settings, resolver: Checked) -> Result<Self, String> {
        let resolver = Arc::new(resolver);
        let build = |keeps: usize| {
            let client = common(settings).dns_resolver(Arc::clone(&resolver)).pool_max_idle_per_host(keeps);
            client.build().map_err(|error| format!("no HTTP client can be made: {error}"))
        };
        Ok(Self {
            keeping: build(settings.per_host)?,
            fresh: build(0)?,
            timeout: settings.timeout,
            answered: Answered::default(),
        })
    }

    /// Sends a request. If its connection had been used before, and breaks before an answer, the receiver has most likely
    /// closed it for being idle, and the request is sent once more. It may be taken twice: hence its id.
    pub(super) async fn send(
        &self,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> reqwest::Result<Response> {
        let began = Instant::now();
        let sent = request(&self.keeping).send().await;
        match &sent {
            Ok(response) => self.answered.note(response),
            Err(error) if Class::of_error(error) == Class::CutOff && self.answered.has(error) => {
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

/// The addresses here of connections that have answered. The system gives an address to another connection once it is free, so
/// that they are no more than it has ports; if that one breaks at once, it is taken for the one before, and costs one more call.
#[derive(Debug, Default)]
struct Answered(Mutex<HashSet<SocketAddr>>);

impl Answered {
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
