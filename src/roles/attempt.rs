//! One attempt: the handler, within its timeout and its lease.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::attached::write_back;
use crate::error::{Error, ErrorKind};
use crate::escape::Escaped;
use crate::handler::Attempt;
use crate::lapse::{About, LapseSource};
use crate::lease::LeaseSignal;
use crate::outcome::Outcome;
use crate::runtime::{Before, Disposition, Ended, Partition, Settlement};
use crate::time::Reading;
use crate::wire::{End, Held, History, Record, State};

/// How long the next timer in quarantine waits for the end of the last to be settled.
const LANDING: Duration = Duration::from_secs(1);
/// How long a handler may go on after its lease was lost, to notice it.
const PARTING: Duration = Duration::from_secs(1);

/// A claimed timer, ready to be run.
pub(crate) struct Job {
    pub(crate) partition: Arc<Partition>,
    pub(crate) held: Held,
    pub(crate) record: Record,
    pub(crate) state: State,
    pub(crate) signal: Arc<LeaseSignal>,
    pub(crate) reading: Reading,
    /// When the claim was sent.
    pub(crate) since: Instant,
    pub(crate) source: LapseSource,
    /// Kept until the attempt has ended.
    pub(crate) permit: Permit,
}

/// A permit to run at the same time as others; given back when dropped.
#[derive(Debug)]
pub(crate) enum Permit {
    /// One of the ordinary ones.
    Ordinary(Arc<Partition>),
    /// The only one of the quarantine.
    Alone(#[allow(dead_code)] OwnedSemaphorePermit), // held, never read
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Self::Ordinary(partition) = self {
            partition.permits.give_back(partition.topic.index, 1);
        }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({})", Escaped(&self.held.key))
    }
}

impl Job {
    /// The present deadline, in ms.
    pub(crate) fn deadline(&self) -> u64 {
        self.state.deadline_after(&self.record)
    }

    /// Runs the attempt and hands over how it ended.
    pub(crate) async fn run(self) {
        if self.signal.is_lost() || !self.is_trusted().await {
            return;
        }
        let (partition, held) = (self.partition.clone(), self.held.clone());
        if AssertUnwindSafe(self.run_to_its_end()).catch_unwind().await.is_err() {
            // What the application gave us besides the handler has panicked: a
            // retry policy, or a value dropped at the end. Leases are renewed
            // for as long as a timer is held.
            error!(
                topic = %partition.topic.config.name, key = %Escaped(&held.key),
                "a panic outside of the handler: the timer runs again when its lease ends"
            );
            partition.topic.stats.panics.add(1);
            partition.leases.lose(&held);
        }
    }

    /// Whether the lease can be relied on. A process that stood still, or whose threads handlers have
    /// blocked, may be past it; then the lease keeper, which stood still as well, finds out first
    /// whose the timer is.
    async fn is_trusted(&self) -> bool {
        let trust = self.partition.topic.config.trust();
        self.since.elapsed() < trust || self.partition.leases.trusted(&self.held, trust).await
    }

    async fn run_to_its_end(self) {
        let stats = &self.partition.topic.stats;
        stats.started(self.source, self.state.lost > 0);
        let (ended, before) = (self.attempt().await, self.before());
        let Self { partition, held, permit, record, .. } = self;
        match ended {
            Some(ended) if partition.leases.holds(&held) => {
                settle(&partition, held.clone(), ended, &before, &record.payload);
            }
            _ => partition.topic.stats.fenced.add(1),
        }
        if let Permit::Alone(_) = permit {
            // Until Redis knows how it ended: or the next in quarantine, should it
            // be the one that takes the listener down, would take this one along.
            // Not for ever: a partition that is parked must not hold up the
            // quarantine of all others.
            let _ = tokio::time::timeout(LANDING, partition.leases.released(&held)).await;
        }
    }

    fn before(&self) -> Before {
        Before {
            attempt: self.state.attempt,
            snoozes: self.state.snoozes,
            history: self.state.history.clone(),
            first_deadline: self.record.deadline,
            ended: self.reading.at(Instant::now()).ms(),
        }
    }

    /// How the attempt ended; `None` if it was not ours any more.
    async fn attempt(&self) -> Option<Ended> {
        if self.state.attempt > 1
            && self.partition.topic.config.restores()
            && write_back::writer_came_first(&self.partition, &self.held.key, self.deadline()).await
        {
            return Some(Ended::Superseded);
        }
        let about = Arc::new(self.about());
        let span = info_span!(
            "lapse",
            topic = %self.partition.topic.config.name,
            key = %Escaped(&self.held.key),
            attempt = about.attempt,
            source = about.source.as_str(),
            lateness_us = u64::try_from(about.lateness.as_micros()).unwrap_or(u64::MAX),
        );
        let handler = self.partition.topic.handler.clone();
        let start = || handler(about, self.record.payload.clone());
        let attempt = match catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|_| Err(decoder_panicked()))
        {
            Ok(attempt) => attempt,
            Err(error) => {
                span.in_scope(|| warn!(%error, "undecodable payload: dead letter"));
                return Some(Ended::Undecodable(error.to_string()));
            }
        };
        let verdict = self.supervise(attempt).instrument(span.clone()).await;
        if let Some(Ended::Failed { kind, error, .. }) = &verdict {
            span.in_scope(|| info!(kind, error = %Escaped(error.as_bytes()), "attempt failed"));
        }
        verdict
    }

    async fn supervise(&self, attempt: Attempt) -> Option<Ended> {
        let timeout = self.partition.topic.config.timeout;
        let attempt = tokio::time::timeout(timeout, AssertUnwindSafe(attempt).catch_unwind());
        let parting = async {
            self.signal.lost().await;
            tokio::time::sleep(PARTING).await;
        };
        let ended = tokio::select! {
            biased;
            ended = attempt => ended,
            () = parting => {
                debug!("lease lost: the handler was stopped");
                return None;
            }
        };
        Some(match ended {
            Ok(Ok(result)) => Ended::from(result),
            Ok(Err(panic)) => Ended::failed("panic", panic_message(&*panic).to_owned()),
            Err(_) => Ended::failed("timeout", format!("no end within {timeout:?}")),
        })
    }

    fn about(&self) -> About {
        let topic = &self.partition.topic;
        let now = self.reading.at(Instant::now());
        let late = now.0.saturating_sub(self.deadline().saturating_mul(1000));
        About {
            key: self.held.key.clone(),
            captures: topic.config.pattern.matches(&self.held.key),
            arming: self.record.arming,
            attempt: self.state.attempt,
            max_attempts: topic.config.attempts(),
            deadline: self.deadline(),
            lateness: Duration::from_micros(late),
            source: self.source,
            recovered: self.state.lost > 0,
            history: History::decode(&self.state.history).0,
            lease: self.signal.clone(),
        }
    }
}

/// Counts how an attempt ended, decides what follows, and leaves it to the settler.
fn settle(partition: &Partition, held: Held, ended: Ended, before: &Before, payload: &Bytes) {
    count(partition, &ended);
    let config = &partition.topic.config;
    let disposition = ended.decide(config, before);
    let restore = match &disposition {
        Disposition::End(End::Retry { attempt, .. }) => write_back::value(payload, config, *attempt),
        _ => None,
    };
    partition.outbox.put(Settlement { restore, ..Settlement::new(held, disposition) });
}

fn count(partition: &Partition, ended: &Ended) {
    let stats = &partition.topic.stats;
    match ended {
        Ended::Returned(Outcome::Drop) => stats.dropped.add(1),
        Ended::Returned(Outcome::Snooze(_)) => {}
        Ended::Returned(_) => stats.handled.add(1),
        Ended::Superseded => stats.superseded.add(1),
        Ended::Undecodable(_) => stats.failed.add(1),
        Ended::Failed { kind, .. } => {
            stats.failed.add(1);
            match *kind {
                "panic" => stats.panics.add(1),
                "timeout" => stats.timeouts.add(1),
                _ => {}
            }
        }
    }
}

/// Without the panic's message, which may quote the payload.
fn decoder_panicked() -> Error {
    Error::new(ErrorKind::Payload, "the decoder of the payload panicked")
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}
