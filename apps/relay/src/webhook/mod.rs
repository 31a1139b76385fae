//! Calls a URL for each occurrence, as Standard Webhooks 1.0 defines it.

mod address;
mod answer;
mod circuit;
mod class;
mod client;
mod drain;
mod hosts;
mod resolve;
mod sign;
mod slots;
mod targets;
mod template;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse::{Failure, Outcome};
use reqwest::dns::Resolve;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use rustls::ClientConfig;
use url::Url;

pub(crate) use self::address::Allowed;
pub(crate) use self::circuit::Limits;
pub(crate) use self::hosts::CalledHostRegistry;
pub(crate) use self::sign::fingerprint;
pub(crate) use self::template::Template;

use self::answer::{AnswerVerdict, verdict};
use self::class::CallClass;
use self::client::Clients;
use self::drain::Drain;
use self::hosts::{CallResult, PermitRefusal};
use crate::message::{self, Form};
use crate::metrics;
use crate::occurrence::Occurrence;
use crate::secret::Secret;

const AGENT: &str = concat!("keylapse/", env!("CARGO_PKG_VERSION"));

/// The checked settings of a webhook.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) template: Template,
    pub(crate) form: Form,
    pub(crate) allowed: Allowed,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) per_host: usize,
    /// How many calls of the topic run at a time.
    pub(crate) at_once: usize,
    pub(crate) circuit: Limits,
    pub(crate) tls: ClientConfig,
}

/// A topic's webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    topic: String,
    clients: Clients,
    settings: Settings,
    hosts: Arc<CalledHostRegistry>,
    drain: Drain,
}

/// The end of a delivery.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// The attempt has ended.
    Ended(Result<Outcome, Failure>),
    /// The receiver is gone, for this reason. The URL must not be called until an operator resumes the topic.
    Gone(String),
}

impl Webhook {
    pub(crate) fn new(topic: &str, settings: Settings) -> Result<Self, String> {
        Self::resolving(topic, settings, Arc::new(resolve::System))
    }

    /// Creates a webhook with this resolver.
    fn resolving(topic: &str, settings: Settings, resolver: Arc<dyn Resolve>) -> Result<Self, String> {
        let check = |host| resolve::check_literal(host, &settings.allowed);
        settings.template.hosts().iter().try_for_each(check)?;
        let clients = Clients::new(
            &settings,
            resolve::FilteringResolver { resolver, allowed: settings.allowed.clone() },
        )?;
        let shared = (!settings.template.is_fixed()).then_some(settings.at_once);
        metrics::webhooks_from_start(topic, CallClass::ALL.iter().map(|class| class.as_str()));
        let circuits = metrics::circuits(topic);
        let hosts =
            Arc::new(CalledHostRegistry::new(topic, settings.per_host, shared, settings.circuit, circuits));
        Ok(Self { topic: topic.to_owned(), clients, settings, hosts, drain: Drain::new() })
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Returns the URL as it was written.
    pub(crate) fn url(&self) -> String {
        self.settings.template.to_string()
    }

    /// Returns the hosts that the webhook calls.
    pub(crate) fn hosts(&self) -> Arc<CalledHostRegistry> {
        Arc::clone(&self.hosts)
    }

    /// Returns the captures in the URL.
    pub(crate) fn captures(&self) -> impl Iterator<Item = &str> {
        self.settings.template.captures()
    }

    /// Returns how many calls to a fixed URL can run at the same time. Further timers need not be claimed.
    pub(crate) fn most_at_once(&self) -> Option<usize> {
        self.settings.template.is_fixed().then_some(self.settings.per_host)
    }

    pub(crate) async fn deliver(&self, of: &Occurrence) -> Delivered {
        let (class, delivered) = self.attempt(of).await;
        metrics::webhook(&self.topic, class.as_str());
        delivered
    }

    async fn attempt(&self, of: &Occurrence) -> (CallClass, Delivered) {
        let url = match self.settings.template.url(of) {
            Ok(url) => url,
            // Another attempt would fail in the same way.
            Err(why) => return (CallClass::InvalidUrl, Delivered::Ended(Err(Failure::dead(why)))),
        };
        let place = match self.hosts.enter(&host_of(&url), &of.key) {
            Ok(place) => place,
            Err(PermitRefusal::Full(wait)) => return (CallClass::HostFull, put_off(wait)),
            Err(PermitRefusal::Open(wait)) => return (CallClass::CircuitOpen, put_off(wait)),
        };
        let began = Instant::now();
        let (class, answer, delivered) = match self.ask(url, of).await {
            Ok(response) => {
                let status = response.status();
                let verdict = verdict(status, response.headers(), SystemTime::now());
                self.drain.take(response);
                (CallClass::of(status), Some(status.to_string()), self.end(verdict))
            }
            Err(error) => (
                CallClass::of_error(&error),
                None,
                Delivered::Ended(Err(Failure::retry(describe_error(&error)))),
            ),
        };
        metrics::webhook_took(&self.topic, began.elapsed());
        place.ended(called(class, answer, &delivered), &of.key);
        (class, delivered)
    }

    async fn ask(&self, url: Url, of: &Occurrence) -> reqwest::Result<Response> {
        let body = message::json(&self.topic, self.settings.form, of);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let signatures = sign::signatures(&self.settings.secrets, &of.id, at, &body);
        let body = Bytes::from(body);
        let request = |client: &Client| {
            let request = client.post(url.clone()).headers(self.settings.headers.clone());
            let request = request.header("content-type", HeaderValue::from_static("application/json"));
            let request = request.header("webhook-id", &of.id).header("webhook-timestamp", at);
            request.header("webhook-signature", &signatures).body(body.clone())
        };
        self.clients.send(request).await
    }

    fn end(&self, verdict: AnswerVerdict) -> Delivered {
        match verdict {
            AnswerVerdict::Ended(ended) => Delivered::Ended(ended),
            AnswerVerdict::Gone if self.settings.template.is_fixed() => {
                Delivered::Gone("the receiver answered 410 Gone".to_owned())
            }
            AnswerVerdict::Gone => Delivered::Ended(Err(Failure::dead("the receiver answered 410 Gone"))),
        }
    }
}

/// Returns the end of a call, for the circuit of its host.
fn called(class: CallClass, answer: Option<String>, delivered: &Delivered) -> CallResult {
    match (delivered, answer) {
        (Delivered::Ended(Err(failure)), answer) if class.is_fault_of_host() => {
            CallResult::Failed(answer, failure.message().to_owned())
        }
        (Delivered::Ended(Ok(Outcome::Snooze(wait))), Some(answer)) => CallResult::Busy(answer, *wait),
        (_, answer) => CallResult::Answered(answer.unwrap_or_default()),
    }
}

fn put_off(wait: Duration) -> Delivered {
    Delivered::Ended(Ok(Outcome::Snooze(wait)))
}

/// Returns host and port, as another port is another receiver.
fn host_of(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default())
}

/// Describes an error and its root cause, without the URL, which may hold secrets.
fn describe_error(error: &reqwest::Error) -> String {
    use std::error::Error;
    let what = match CallClass::of_error(error) {
        CallClass::TimedOut => "the receiver did not answer in time",
        CallClass::Unreachable => "the receiver cannot be reached",
        _ => "the call failed",
    };
    let mut cause = error.source();
    while let Some(next) = cause.and_then(Error::source) {
        cause = Some(next);
    }
    cause.map_or_else(|| what.to_owned(), |cause| format!("{what}: {cause}"))
}
