//! Runs a listener that delivers as a configuration file describes, and replaces it when the file is applied again.

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

use crate::config::{Config, RelayTopic, TopicSource};
use crate::delivery::Delivery;
use crate::occurrence::Occurrence;
use crate::webhook::{CalledHostRegistry, Delivered};

/// How often the readiness of a starting listener is checked.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a timer is snoozed whose receiver is gone. A topic is paused at most once in this time, as deliveries that were
/// already running may get the same answer.
const RECEIVER_GONE_SNOOZE: Duration = Duration::from_secs(1);

/// Delivers timers and expired keys. One listener is current; earlier ones finish their deliveries.
#[derive(Debug)]
pub struct Relay {
    client: Client,
    /// Stops the current listener.
    stop: Option<oneshot::Sender<()>>,
    /// The current listener, and earlier ones that have not ended.
    running: JoinSet<Result<()>>,
    present: watch::Sender<CurrentListener>,
}

/// The current listener, for [`RelayHealth`].
#[derive(Clone, Debug, Default)]
struct CurrentListener {
    health: Option<Health>,
    /// One of its topics is attached.
    is_attached: bool,
    /// The names of the topics in its file.
    topics: Vec<String>,
}

/// The health of a [`Relay`], also after it has applied another configuration. Reading it sends nothing to the server.
#[derive(Clone, Debug)]
pub struct RelayHealth(watch::Receiver<CurrentListener>);

/// The destinations of a topic, which its listener reports to operators.
#[derive(Debug)]
struct CalledHosts {
    /// None unless the topic has a webhook.
    hosts: Option<Arc<CalledHostRegistry>>,
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

    /// Makes the timers due now that wait for this host. The first of them is the trial call.
    fn try_now(&self, name: &str) {
        for key in self.hosts.as_ref().map(|hosts| hosts.try_now(name)).unwrap_or_default() {
            let (schedule, topic) = (self.schedule.clone(), self.topic.clone());
            tokio::spawn(async move {
                if let Err(error) = schedule.reschedule(&topic, Key(key), Duration::ZERO).await {
                    debug!(topic = topic.name(), %error, "cannot make a timer due that waits for the host");
                }
            });
        }
    }
}

/// Handles the lapses of one topic.
struct DeliveryHandler {
    name: String,
    topic: Topic<Bytes>,
    delivery: Delivery,
    schedule: Schedule,
    /// When the topic was last paused because its receiver was gone.
    closed: Mutex<Option<Instant>>,
}

impl Relay {
    /// Creates a relay that delivers nothing until a configuration is applied.
    pub fn new(client: Client) -> Self {
        Self { client, stop: None, running: JoinSet::new(), present: watch::Sender::default() }
    }

    /// Returns the health of this relay.
    pub fn health(&self) -> RelayHealth {
        RelayHealth(self.present.subscribe())
    }

    /// Checks that a listener can be built from a configuration.
    ///
    /// # Errors
    /// Patterns that conflict, and settings that can never work: the errors of
    /// [`ListenerBuilder::build`](keylapse::ListenerBuilder::build).
    pub fn check(&self, config: Config) -> Result<()> {
        self.listener(config).map(drop)
    }

    /// Starts a listener for this configuration, and stops its predecessor once the new listener works.
    ///
    /// The predecessor finishes its deliveries by its own configuration. Both listen for a while, and no timer runs in both.
    ///
    /// With a predecessor, this waits until the server answers and, with attached topics, until the new listener has
    /// detected whether their events arrive. Without one it returns immediately. Dropping the future changes nothing.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check) and [`Listener::run_until`]. The predecessor then continues. Without a
    /// predecessor, the latter are those of [`ended`](Self::ended).
    pub async fn apply(&mut self, config: Config) -> Result<()> {
        let is_attached = config.topics.iter().any(|topic| matches!(topic.source, TopicSource::Attached(_)));
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
        self.present.send_replace(CurrentListener { health: Some(health), is_attached, topics });
        if let Some(before) = self.stop.replace(stop) {
            let _ = before.send(());
        }
        Ok(())
    }

    /// Waits until a listener ends.
    ///
    /// # Errors
    /// The error that ended it, as of [`Listener::run_until`].
    pub async fn ended(&mut self) -> Result<()> {
        match self.running.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            None => std::future::pending().await,
        }
    }

    /// Stops all listeners. Deliveries finish within the grace time, or their timers are released.
    ///
    /// # Errors
    /// The error of the listener that ended last, as of [`Listener::run_until`].
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
        for RelayTopic { name, source, delivery } in config.topics {
            let called = |topic: &Topic<Bytes>| {
                let (hosts, identity) = (delivery.hosts(), delivery.identity());
                Arc::new(CalledHosts { hosts, identity, topic: topic.clone(), schedule: schedule.clone() })
            };
            let source = match source {
                TopicSource::Managed(topic) => {
                    let called = called(&topic);
                    TopicSource::Managed(topic.destinations(called))
                }
                TopicSource::Attached(attached) => {
                    let called = called(attached.topic());
                    TopicSource::Attached(attached.destinations(called))
                }
            };
            let schedule = schedule.clone();
            let outlet = |topic| {
                Arc::new(DeliveryHandler { name, topic, delivery, schedule, closed: Mutex::default() })
            };
            builder = match source {
                TopicSource::Managed(topic) => {
                    let outlet = outlet(topic.clone());
                    builder.on(topic, move |lapse: Lapse<Bytes>| {
                        let outlet = Arc::clone(&outlet);
                        async move { outlet.deliver(Occurrence::of_timer(lapse)).await }
                    })
                }
                TopicSource::Attached(attached) => {
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

/// Waits until this listener can replace its predecessor. With attached topics it must have detected whether events
/// arrive: a key that is written and expires while nobody is subscribed is lost.
async fn until_working(health: &Health, is_attached: bool) {
    while !health.is_ready() || (is_attached && health.mode() == EventMode::Starting) {
        tokio::time::sleep(READY_POLL_INTERVAL).await;
    }
}

impl RelayHealth {
    /// Returns why the relay cannot do its work; nothing if it can. The server must answer. With attached topics, the
    /// heartbeat key must have shown that expired events arrive.
    pub fn faults(&self) -> Vec<String> {
        let present = self.0.borrow();
        let Some(health) = &present.health else { return vec!["no configuration is applied yet".to_owned()] };
        let mut faults = Vec::new();
        if !health.connected() {
            faults.push("the server does not answer".to_owned());
        } else if !health.is_ready() {
            faults.push("the listener is starting or stopping".to_owned());
        }
        if present.is_attached && !health.heartbeat_received() {
            faults.push("expired events do not arrive: run `keylapse doctor` for the reason".to_owned());
        }
        faults
    }

    /// Returns whether the current configuration has a topic of this name.
    pub fn has_topic(&self, name: &str) -> bool {
        self.0.borrow().topics.iter().any(|topic| topic == name)
    }
}

impl DeliveryHandler {
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

    /// Pauses the topic until an operator resumes it, and snoozes this timer. Many deliveries may call this at the same
    /// time.
    async fn close(&self, why: &str) -> Result<Outcome, Failure> {
        let Ok(mut closed) = self.closed.try_lock() else { return Ok(Outcome::Snooze(RECEIVER_GONE_SNOOZE)) };
        if closed.is_none_or(|at| at.elapsed() >= RECEIVER_GONE_SNOOZE) {
            if let Err(error) = self.schedule.pause(&self.topic, why).await {
                error!(topic = self.name, %error, "cannot pause the topic, whose receiver is gone");
                return Err(Failure::retry(why));
            }
            warn!(
                topic = self.name,
                why, "the topic is paused, as its receiver is gone: run `keylapse resume` to continue"
            );
            *closed = Some(Instant::now());
        }
        Ok(Outcome::Snooze(RECEIVER_GONE_SNOOZE))
    }
}
