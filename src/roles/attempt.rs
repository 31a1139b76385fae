//! One attempt: the handler, within its timeout and its lease.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, SetOnce};
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::attached::write_back;
use crate::error::{Error, ErrorKind};
use crate::escape::Escaped;
use crate::handler::Attempt;
use crate::lapse::{About, LapseSource, RUNNING};
use crate::outcome::{Failure, Outcome};
use crate::runtime::{Ended, Groups, Member, Partition, Settlement};
use crate::stats::TopicCounters;
use crate::time::Reading;
use crate::wire::{End, Held, History, MAX_BATCH, Record, State};

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
    pub(crate) lost: Arc<SetOnce<()>>,
    pub(crate) reading: Reading,
    /// When the claim was sent.
    pub(crate) since: Instant,
    pub(crate) source: LapseSource,
    /// Kept until the attempt has ended.
    pub(crate) permit: Permit,
}

/// Permits to run at the same time as others; given back when dropped.
pub(crate) struct Permit {
    partition: Arc<Partition>,
    /// How many of the ordinary ones.
    ordinary: usize,
    /// The spare one of the quarantine.
    spare: Option<OwnedSemaphorePermit>,
    /// For what is claimed from the quarantine.
    groups: Option<Arc<Groups>>,
    member: Option<Member>,
}

impl Permit {
    /// As many as there are for a claim; from the quarantine, as its group has room for.
    pub(crate) fn take(partition: &Arc<Partition>, groups: Option<&Arc<Groups>>) -> Self {
        let most = groups.map_or(MAX_BATCH, |groups| groups.room());
        let spare = groups.filter(|_| most > 0).and_then(|groups| groups.spare());
        let ordinary = partition.permits.take(partition.topic.index, most - usize::from(spare.is_some()));
        Self { partition: partition.clone(), ordinary, spare, groups: groups.cloned(), member: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.ordinary + usize::from(self.spare.is_some())
    }

    /// One of them, for an attempt of a timer that has lost so many leases.
    pub(crate) fn split(&mut self, lost: u8) -> Self {
        debug_assert!(self.count() > 0, "a claim never takes more than was asked for");
        let spare = self.spare.take();
        let ordinary = usize::from(spare.is_none()).min(self.ordinary);
        self.ordinary -= ordinary;
        let member = self.groups.as_ref().map(|groups| groups.join(lost));
        Self { partition: self.partition.clone(), ordinary, spare, groups: None, member }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.partition.permits.give_back(self.partition.topic.index, self.ordinary);
    }
}

impl Job {
    /// The present deadline, in ms.
    pub(crate) fn deadline(&self) -> u64 {
        self.state.deadline_after(&self.record)
    }

    /// Runs the attempt and hands over how it ended.
    pub(crate) async fn run(self) {
        if self.lost.initialized() || !self.is_trusted().await {
            return;
        }
        let (partition, held) = (self.partition.clone(), self.held.clone());
        if AssertUnwindSafe(self.run_to_its_end()).catch_unwind().await.is_err() {
            // What the application gave us besides the handler has panicked: a
            // retry policy, or a value dropped at the end. Leases are renewed
            // for as long as a timer is held.
            let (topic, key) = (&partition.topic, Escaped(&held.key));
            error!(?topic, %key, "a panic outside of the handler: the timer runs again when its lease ends");
            topic.stats.panics.add(1);
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
        let Self { partition, held, .. } = &self;
        partition.topic.stats.started(self.source, self.state.lost > 0);
        match self.attempt().await {
            Some(ended) if partition.leases.holds(held) => self.settle(ended),
            _ => partition.topic.stats.fenced.add(1),
        }
        if self.permit.member.is_some() {
            // Until Redis knows how it ended: or the next in quarantine, should it
            // be the one that takes the listener down, would take this one along.
            // Not for ever: a partition that is parked must not hold up the
            // quarantine of all others.
            let _ = tokio::time::timeout(LANDING, partition.leases.released(held)).await;
        }
    }

    /// Counts how the attempt ended, decides what follows, and leaves it to the settler.
    fn settle(&self, ended: Ended) {
        let topic = &self.partition.topic;
        count(&topic.stats, &ended);
        let now = self.reading.at(Instant::now()).ms();
        let end = ended.decide(&topic.config, &self.record, &self.state, now);
        let restore = match &end {
            Some(End::Retry { attempt, .. }) => {
                write_back::value(&self.record.payload, &topic.config, *attempt)
            }
            _ => None,
        };
        self.partition.outbox.put(Settlement { held: self.held.clone(), end, restore });
    }

    /// How the attempt ended; `None` if it was not ours any more.
    async fn attempt(&self) -> Option<Ended> {
        if self.state.attempt > 1 && self.partition.topic.config.restores() {
            // Boxed: it is rare, and asks the server, which takes kilobytes. Each attempt is moved to its task.
            let first = write_back::writer_came_first(&self.partition, &self.held.key, self.deadline());
            if Box::pin(first).await {
                return Some(Ended::Superseded);
            }
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
        // Without the panic's message, which may quote the payload.
        let panicked = |_| Err(Error::new(ErrorKind::Payload, "the decoder of the payload panicked"));
        let attempt = match catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(panicked) {
            Ok(attempt) => attempt,
            Err(error) => {
                span.in_scope(|| warn!(%error, "undecodable payload: dead letter"));
                return Some(Ended::Undecodable(error.to_string()));
            }
        };
        let verdict = self.supervise(attempt).instrument(span.clone()).await;
        if let Some(Ended::Failed(kind, Failure { error, .. })) = &verdict {
            span.in_scope(|| info!(kind, error = %Escaped(error.as_bytes()), "attempt failed"));
        }
        verdict
    }

    async fn supervise(&self, attempt: Attempt) -> Option<Ended> {
        let timeout = self.partition.topic.config.timeout;
        let attempt = RUNNING.scope(self.record.arming, attempt);
        let attempt = tokio::time::timeout(timeout, AssertUnwindSafe(attempt).catch_unwind());
        let parting = async {
            self.lost.wait().await;
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
            Ok(Ok(Ok(outcome))) => Ended::Returned(outcome),
            Ok(Ok(Err(failure))) => Ended::Failed("error", failure),
            Ok(Err(panic)) => Ended::Failed("panic", Failure::retry(panic_message(&*panic))),
            Err(_) => Ended::Failed("timeout", Failure::retry(format!("no end within {timeout:?}"))),
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
            redelivered: self.state.lost > 0,
            history: History::decode(&self.state.history).0,
            lost: self.lost.clone(),
        }
    }
}

fn count(stats: &TopicCounters, ended: &Ended) {
    match ended {
        Ended::Returned(Outcome::Drop) => stats.dropped.add(1),
        Ended::Returned(Outcome::Snooze(_)) => {}
        Ended::Returned(_) => stats.handled.add(1),
        Ended::Superseded => stats.superseded.add(1),
        Ended::Undecodable(_) => stats.failed.add(1),
        Ended::Failed(kind, _) => {
            stats.failed.add(1);
            match *kind {
                "panic" => stats.panics.add(1),
                "timeout" => stats.timeouts.add(1),
                _ => {}
            }
        }
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::Job;

    /// Each attempt is moved into its task: at 4 kB, that took a twelfth of the throughput.
    #[test]
    fn what_an_attempt_rarely_does_takes_no_room_in_each() {
        fn size<F>(_: impl Fn(Job) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(Job::run) < 2048, "{} bytes", size(Job::run));
    }
}
