//! Runs what a file says, until it is told to stop or to do what the file says now.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylapse::destinations::{Destination, Destinations};
use keylapse::health::{EventMode, Health};
use keylapse::{Client, Expired, Failure, Key, Lapse, Listener, Outcome, Result, Schedule, Topic};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::config::{Config, Relayed, Source};
use crate::delivery::Delivery;
use crate::occurrence::Occurrence;
use crate::webhook::{Delivered, Hosts};

/// How often a listener that starts is asked whether it works.
const PAUSE: Duration = Duration::from_millis(10);

/// How soon one may be called again whose receiver is gone, if somebody lets it go on. What was under way by the time its topic
/// was paused ends within that, or pauses it once more.
const HANDED_BACK: Duration = Duration::from_secs(1);

/// Everything that is relayed.
#[derive(Debug)]
pub struct Relay {
    client: Client,
    /// Tells the present one to stop.
    stop: Option<oneshot::Sender<()>>,
    /// The present one, and those before it that have not ended yet.
    running: JoinSet<Result<()>>,
    present: watch::Sender<Present>,
}

/// The present listener, for probes.
#[derive(Clone, Debug, Default)]
struct Present {
    health: Option<Health>,
    /// Whether it waits for keys of other programs.
    is_attached: bool,
    /// The names of all topics of its file.
    topics: Vec<String>,
}

/// A view of how a [`Relay`] is. It follows it through reloads, and asks nothing of the server.
#[derive(Clone, Debug)]
pub struct RelayHealth(watch::Receiver<Present>);

/// The hosts that a topic's deliveries call, for operators.
#[derive(Debug)]
struct CalledHosts {
    /// Of webhooks.
    hosts: Option<Arc<Hosts>>,
    identity: String,
    topic: Topic<Bytes>,
    schedule: Schedule,
}

impl Destinations for CalledHosts {
    fn states(&self) -> Vec<Destination> {
        self.hosts.as_ref().map(|hosts| hosts.states()).unwrap_or_default()
    }

    fn identity(&self) -> Option<String> {
        Some(self.identity.clone())
    }

    /// Timers that wait for it come due now: the first of them is the trial.
    fn try_now(&self, name: &str) {
        for key in self.hosts.as_ref().map(|hosts| hosts.try_now(name)).unwrap_or_default() {
            let (schedule, topic) = (self.schedule.clone(), self.topic.clone());
            tokio::spawn(async move {
                if let Err(error) = schedule.reschedule(&topic, Key(key), Duration::ZERO).await {
                    debug!(topic = topic.name(), %error, "a timer that waits for a host is not brought forward");
                }
            });
        }
    }
}

/// One topic's way out.
struct Outlet {
    name: String,
    topic: Topic<Bytes>,
    delivery: Delivery,
    schedule: Schedule,
    /// When it was last paused because nobody is there any more.
    closed: Mutex<Option<Instant>>,
}

impl Relay {
    /// Nothing is relayed yet.
    pub fn new(client: Client) -> Self {
        Self { client, stop: None, running: JoinSet::new(), present: watch::Sender::default() }
    }

    /// A view of how it is.
    pub fn health(&self) -> RelayHealth {
        RelayHealth(self.present.subscribe())
    }

    /// Whether a listener can be made of what a file says: patterns that conflict, and settings that can never work.
    ///
    /// # Errors
    /// As for [`ListenerBuilder::build`](keylapse::ListenerBuilder::build).
    pub fn check(&self, config: Config) -> Result<()> {
        self.listener(config).map(drop)
    }

    /// Does what this file says from now on, once its listener works: the one before finishes what it runs, by what its file
    /// said, and ends. In between both listen, and no timer is run by both.
    ///
    /// It waits for a server that is away, and with attached keys until it is settled whether their events arrive. If it is
    /// dropped before that, all goes on as before.
    ///
    /// # Errors
    /// As for [`check`](Self::check) and [`Listener::run_until`]; then all goes on as before. Of the first file errors of the
    /// latter kind are those of [`ended`](Self::ended).
    pub async fn follow(&mut self, config: Config) -> Result<()> {
        let is_attached = config.topics.iter().any(|topic| matches!(topic.source, Source::Attached(_)));
        let topics = config.topics.iter().map(|topic| topic.name.clone()).collect();
        let listener = self.listener(config)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let health = listener.health();
        let mut listening = Box::pin(listener.run_until(stopped));
        if self.stop.is_some() {
            tokio::select! {
                ended = &mut listening => return ended,
                () = until_working(&health, is_attached) => {}
            }
        }
        self.running.spawn(listening);
        self.present.send_replace(Present { health: Some(health), is_attached, topics });
        if let Some(before) = self.stop.replace(stop) {
            let _ = before.send(());
        }
        Ok(())
    }

    /// Until one ends: the error is why, if it was not told to.
    ///
    /// # Errors
    /// As for [`Listener::run_until`].
    pub async fn ended(&mut self) -> Result<()> {
        match self.running.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            None => std::future::pending().await,
        }
    }

    /// Finishes or hands back what is running.
    ///
    /// # Errors
    /// As for [`Listener::run_until`].
    pub async fn stop(mut self) -> Result<()> {
        drop(self.stop.take());
        let mut last = Ok(());
        while let Some(ended) = self.running.join_next().await {
            last = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        }
        last
    }

    fn listener(&self, config: Config) -> Result<Listener> {
        let schedule = Schedule::new(self.client.clone());
        let mut builder = Listener::builder(self.client.clone());
        if let Some(attempts) = config.concurrency {
            builder = builder.concurrency(attempts);
        }
        if let Some(grace) = config.grace {
            builder = builder.grace(grace);
        }
        if config.manage_notifications {
            builder = builder.manage_notifications();
        }
        if config.save_requests {
            builder = builder.save_requests();
        }
        for Relayed { name, source, delivery } in config.topics {
            let called = |topic: &Topic<Bytes>| {
                let (hosts, identity) = (delivery.hosts(), delivery.identity());
                Arc::new(CalledHosts { hosts, identity, topic: topic.clone(), schedule: schedule.clone() })
            };
            let source = match source {
                Source::Managed(topic) => {
                    let called = called(&topic);
                    Source::Managed(topic.destinations(called))
                }
                Source::Attached(attached) => {
                    let called = called(attached.topic());
                    Source::Attached(attached.destinations(called))
                }
            };
            let schedule = schedule.clone();
            let outlet =
                |topic| Arc::new(Outlet { name, topic, delivery, schedule, closed: Mutex::default() });
            builder = match source {
                Source::Managed(topic) => {
                    let outlet = outlet(topic.clone());
                    builder.on(topic, move |lapse: Lapse<Bytes>| {
                        let outlet = Arc::clone(&outlet);
                        async move { outlet.deliver(Occurrence::of_timer(lapse)).await }
                    })
                }
                Source::Attached(attached) => {
                    let outlet = outlet(attached.topic().clone());
                    builder.attach(attached, move |lapse: Lapse<Expired<Bytes>>| {
                        let outlet = Arc::clone(&outlet);
                        async move { outlet.deliver(Occurrence::of_key(&lapse)).await }
                    })
                }
            };
        }
        builder.build()
    }
}

/// Waits until this listener does all that its predecessor does. With attached keys it has to be settled whether their
/// events arrive: a key that is written and expires while nobody is subscribed is lost.
async fn until_working(health: &Health, is_attached: bool) {
    while !health.is_ready() || (is_attached && health.mode() == EventMode::Starting) {
        tokio::time::sleep(PAUSE).await;
    }
}

impl RelayHealth {
    /// Why it cannot do its work; nothing where it can: the server answers and, where keys of other programs are
    /// waited for, a canary has shown that their expiry is announced.
    pub fn faults(&self) -> Vec<String> {
        let present = self.0.borrow();
        let Some(health) = &present.health else { return vec!["nothing is relayed yet".to_owned()] };
        let mut faults = Vec::new();
        if !health.connected() {
            faults.push("the server does not answer".to_owned());
        } else if !health.is_ready() {
            faults.push("it is starting, or stopping".to_owned());
        }
        if present.is_attached && !health.canary_heard() {
            faults.push("expired keys are not announced: `keylapse doctor` says why".to_owned());
        }
        faults
    }

    /// Returns whether the file that holds now has a topic of this name.
    pub fn has_topic(&self, name: &str) -> bool {
        self.0.borrow().topics.iter().any(|topic| topic == name)
    }
}

impl Outlet {
    async fn deliver(&self, of: Occurrence) -> Result<Outcome, Failure> {
        match &self.delivery {
            Delivery::Webhook(webhook) => match webhook.deliver(&of).await {
                Delivered::Ended(ended) => ended,
                Delivered::Gone(why) => self.close(&why).await,
            },
            Delivery::Forward(forward) => forward.deliver(&self.name, &of, &self.schedule).await,
            #[cfg(unix)]
            Delivery::Exec(exec) => exec.deliver(&self.name, &of).await,
        }
    }

    /// Nobody is there any more: all wait until somebody has looked, as does this one. Many can find so at the same time.
    async fn close(&self, why: &str) -> Result<Outcome, Failure> {
        let Ok(mut closed) = self.closed.try_lock() else { return Ok(Outcome::Snooze(HANDED_BACK)) };
        if closed.is_none_or(|at| at.elapsed() >= HANDED_BACK) {
            if let Err(error) = self.schedule.pause(&self.topic, why).await {
                error!(topic = self.name, %error, "it cannot be paused");
                return Err(Failure::retry(why));
            }
            warn!(topic = self.name, why, "paused; `keylapse resume` lets it go on");
            *closed = Some(Instant::now());
        }
        Ok(Outcome::Snooze(HANDED_BACK))
    }
}
