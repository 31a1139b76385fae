//! One attempt: the handler, within its timeout and its lease.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::lease::LeaseSignal;
use crate::attached::write_back::{Presence, presence};
use crate::error::{Error, ErrorKind};
use crate::escape::Escaped;
use crate::handler::Attempt;
use crate::lapse::{About, Source};
use crate::runtime::partition::Partition;
use crate::runtime::disposition::{Before, Ended};
use crate::wire::types::Held;
use crate::wire::record::{Record, State};
use crate::time::Reading;

/// How long the next suspect waits for the end of the last to be settled.
const LANDING: Duration = Duration::from_secs(1);
/// How long a handler may go on after its lease was lost, to notice it.
const PARTING: Duration = Duration::from_secs(1);

/// A claimed timer, ready to be run.
pub(crate) struct Job {
    pub(crate) partition: Arc<Partition>,
    pub(crate) held: Held,
    pub(crate) record: Record,
    pub(crate) state: State,
    pub(crate) watch: Arc<LeaseSignal>,
    pub(crate) reading: Reading,
    /// When the claim was sent.
    pub(crate) since: Instant,
    pub(crate) source: Source,
    /// Kept until the attempt has ended.
    pub(crate) place: Permit,
}

/// A place among those that run at a time; given back when dropped.
#[derive(Debug)]
pub(crate) enum Permit {
    /// One of the ordinary permits.
    Ordinary(Arc<Partition>),
    /// The one place of quarantine.
    Alone(#[allow(dead_code)] Option<OwnedSemaphorePermit>), // held, never read
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
        if self.watch.is_lost() || !self.is_trusted().await {
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
    /// blocked, may be past it; then the scanner of the leases, who stood still as well, finds out first
    /// whose the timer is.
    async fn is_trusted(&self) -> bool {
        let trust = self.partition.topic.config.trust();
        self.since.elapsed() < trust || self.partition.leases.trusted(&self.held, trust).await
    }

    async fn run_to_its_end(self) {
        let stats = &self.partition.topic.stats;
        stats.started(self.source, self.state.lost > 0);
        let (verdict, before) = (self.attempt().await, self.before());
        let Self { partition, held, place, record, .. } = self;
        match verdict {
            Some(verdict) if partition.leases.holds(&held) => {
                partition.settle(held.clone(), verdict, &before, &record.payload);
            }
            _ => partition.topic.stats.fenced.add(1),
        }
        if let Permit::Alone(_) = place {
            // Until Redis knows how it ended: or the next suspect, should it be
            // the one that takes the listener down, would take this one along.
            // Not for ever: a partition that is parked must not hold up the
            // quarantine of all others.
            let _ = tokio::time::timeout(LANDING, partition.leases.landed(&held)).await;
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
        if self.writer_came_first().await {
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
        let start = || handler.start(about, self.record.payload.clone());
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

    /// Whether the key was written back for this attempt, and its writer has created it again.
    async fn writer_came_first(&self) -> bool {
        if self.state.attempt < 2 || self.partition.topic.config.write_back().is_none() {
            return false;
        }
        let Some(foreign) = &self.partition.foreign else { return false };
        match presence(foreign, &self.held.key, self.deadline()).await {
            Ok(Presence::Theirs) => {
                debug!(key = %Escaped(&self.held.key), "its writer has created the key again: the retry gives way");
                true
            }
            Ok(Presence::Gone) => {
                if let Err(error) = foreign.lend(&self.partition.at, &self.held.key, self.deadline()).await {
                    debug!(%error, "not said: its announcement may be taken for another lapse");
                }
                false
            }
            Err(error) => {
                debug!(%error, "the key was not looked at: the retry runs");
                false
            }
        }
    }

    async fn supervise(&self, attempt: Attempt) -> Option<Ended> {
        let timeout = self.partition.topic.config.timeout;
        let attempt = tokio::time::timeout(timeout, AssertUnwindSafe(attempt).catch_unwind());
        let parting = async {
            self.watch.lost().await;
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
            history: crate::wire::record::History::decode(&self.state.history).0,
            lease: self.watch.clone(),
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
