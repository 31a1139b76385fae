//! Makes a claim, repeats it until it is answered, and turns the answer into jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::boottime::now;
use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::id::{SlotId, Token};
use crate::lapse::LapseSource;
use crate::log::{LogThrottle, debug, error, info, warn};
use crate::roles::attempt::{AttemptSlots, Job};
use crate::runtime::{Lease, Partition};
use crate::stats::meter::ClaimResult;
use crate::time::{ClockReading, MAX_DEADLINE_MS, ms_ceil};
use crate::wire::{
    AttemptEnd, Claim, Claimed, ClaimedTimer, DeadReason, Index, LeaseRef, QuarantineGroup, Record, State,
};

/// The answer to a claim, with the times of the call.
pub(super) struct AnsweredClaim {
    pub(super) claimed: Claimed,
    pub(super) token: Token,
    /// When the claim was sent, by the clock of leases.
    pub(super) sent: Instant,
    /// The server's estimated time when the answer arrived.
    pub(super) reading: ClockReading,
}

/// Claims up to `limit` timers that are due within `reach` ms. `id` is the claimer's ID.
///
/// Repeats a claim without an answer for up to a lease time, since its timers would otherwise wait until their leases
/// end. The answer may have been too large, so each repeat asks for less. The server releases claimed timers that the
/// smaller answer leaves out.
///
/// # Errors
/// Returns an error if the server refused the claim, or did not answer it within the lease time.
pub(super) async fn claim_timers(
    partition: &Partition,
    index: Index,
    id: SlotId,
    limit: usize,
    reach: i64,
    group: QuarantineGroup,
    trouble: &mut ClaimTrouble,
) -> Result<AnsweredClaim> {
    let config = &partition.topic.config;
    let call = Claim {
        index,
        slot: id,
        token: Token::random(),
        repeat: false,
        limit,
        bytes: trouble.size.limit_after(0),
        lookahead_ms: reach,
        lease_ms: ms_ceil(config.lease),
        letters: config.dead_letters,
        group,
    };
    let (mut sent, mut asked) = (now(), Instant::now());
    let until = Some(asked + config.lease);
    let (size, lost) = (trouble.size, AtomicU32::new(0));
    let should_retry = |error: &Error, repeat| {
        if error.maybe_done() {
            let lost = 1 + lost.fetch_add(1, Ordering::Relaxed);
            warn_lost_answers(partition, lost, error);
        }
        trouble.report_error(partition, index, error);
        repeat
    };
    let claim = |repeat| {
        (sent, asked) = (now(), Instant::now());
        partition.store.claim(
            &partition.names,
            Claim { repeat, bytes: size.limit_after(lost.load(Ordering::Relaxed)), ..call },
        )
    };
    let claimed = retry(until, Error::maybe_done, should_retry, claim).await.map_err(|(error, _)| error)?;
    let reading = partition.clock.update(asked, ClockReading::now(claimed.stamp));
    count_claim(partition, &claimed);
    trouble.size.adapt(lost.load(Ordering::Relaxed), &claimed.timers);
    trouble.end(partition, index);
    Ok(AnsweredClaim { claimed, token: call.token, sent, reading })
}

/// The errors that keep one claimer from claiming, and the size of its claims.
#[derive(Debug, Default)]
pub(super) struct ClaimTrouble {
    /// The kind of the last error since the last answer.
    last: Option<ErrorKind>,
    /// Limits log lines about this partition alone.
    parked: LogThrottle,
    size: AnswerSize,
}

impl ClaimTrouble {
    /// Counts and logs an error of a claim. Marks the partition as parked if an operator has to repair it.
    fn report_error(&mut self, partition: &Partition, index: Index, reason: &Error) {
        let kind = reason.kind();
        partition.topic.meter.claim(ClaimResult::Failed);
        partition.topic.last_error.note(reason);
        if self.last.replace(kind) != Some(kind) {
            partition.topic.stats.claim_errors.add(1);
        }
        let (topic, number) = (&partition.topic.config.name, partition.names.index);
        if kind == ErrorKind::Partitions {
            partition.health.set_parked(index, true);
            // The topic was repartitioned, which is logged once, rather than for each partition.
            if partition.topic.renumbered.should_log(reason) {
                error!(%topic, error = %reason, "the topic has another number of partitions: this listener runs none of its timers");
            }
        } else if matches!(kind, ErrorKind::WrongType | ErrorKind::WireVersion) {
            partition.health.set_parked(index, true);
            if self.parked.should_log(reason) {
                error!(%topic, partition = number, error = %reason, "the partition is parked until this is repaired");
            }
        } else if partition.outage.should_log(reason) {
            if reason.needs_operator() {
                error!(%topic, partition = number, error = %reason, "nothing can be claimed until this is repaired");
            } else {
                warn!(%topic, partition = number, error = %reason, "cannot claim; trying again");
            }
        }
    }

    /// Handles an answer: marks the partition as not parked, and logs the end of each trouble.
    fn end(&mut self, partition: &Partition, index: Index) {
        let renumbered = self.last.take() == Some(ErrorKind::Partitions);
        partition.health.set_parked(index, false);
        let (topic, number) = (&partition.topic.config.name, partition.names.index);
        if renumbered && partition.topic.renumbered.is_over() {
            info!(%topic, "the topic has the same number of partitions as this program again");
        }
        if self.parked.is_over() {
            info!(%topic, partition = number, "the partition is repaired, and no longer parked");
        }
        if partition.outage.is_over() {
            info!(%topic, partition = number, "claims are answered again");
        }
    }
}

/// Warns of lost answers from the second one on. The connection of the first may have been closed before the claim
/// was sent. A second one, on a new connection, has a lasting cause.
fn warn_lost_answers(partition: &Partition, lost: u32, reason: &Error) {
    let topic = &partition.topic;
    if lost >= 2 && reason.kind() != ErrorKind::Timeout && topic.lost_answers.is_new(reason) {
        warn!(
            topic = %topic.config.name, partition = partition.names.index, error = %reason,
            look_at = "CONFIG GET client-output-buffer-limit (normal clients), CONFIG GET maxmemory-clients",
            "the server closes connections instead of answering claims; claims ask for less now"
        );
    }
}

/// Counts an answered claim and its timers, and logs what the server has repaired or ended on the way.
fn count_claim(partition: &Partition, claimed: &Claimed) {
    let stats = &partition.topic.stats;
    stats.claims.add(1);
    stats.empty_claims.add(usize::from(claimed.timers.is_empty()));
    stats.claimed.add(claimed.timers.len());
    let result = if claimed.timers.is_empty() { ClaimResult::Empty } else { ClaimResult::Taken };
    partition.topic.meter.claim(result);
    let topic = &partition.topic.config.name;
    if claimed.orphans > 0 {
        stats.orphans.add_u64(claimed.orphans);
        warn!(%topic, count = claimed.orphans, "index entries without a record were removed: was something deleted?");
    }
    if claimed.parked > 0 {
        stats.parked.add_u64(claimed.parked);
        warn!(%topic, count = claimed.parked, "records of a newer keylapse were put off by a minute: update this program");
    }
    if claimed.dead_lettered > 0 {
        stats.dead.add_u64(claimed.dead_lettered);
        partition.topic.meter.dead(DeadReason::LostLeases, claimed.dead_lettered);
        warn!(%topic, count = claimed.dead_lettered, "timers ended as dead letters: unreadable, or lost a lease too often");
    }
    stats.trimmed.add_u64(claimed.trimmed);
}

impl AnsweredClaim {
    /// Registers the leases of the claimed timers. Returns their jobs, with the times at which they may start. Timers that
    /// cannot run are settled.
    pub(super) fn into_jobs(
        self,
        partition: &Arc<Partition>,
        source: LapseSource,
        mut slots: AttemptSlots,
    ) -> Vec<(Instant, Job)> {
        let Self { claimed, token, sent, reading } = self;
        let latest = claimed.stamp.ms() + ms_ceil(partition.topic.config.lookahead);
        let mut jobs = Vec::with_capacity(claimed.timers.len());
        let held = claimed.timers.iter().map(|timer| LeaseRef { key: timer.key.clone(), token });
        let leases = partition.leases.add(held, sent);
        for (timer, lease) in claimed.timers.into_iter().zip(leases) {
            let trace = Record::traceparent(&timer.record);
            match decode(timer, token) {
                Some((record, state)) if state.deadline_after(&record) <= latest => {
                    let lost = state.lost;
                    let job = Job {
                        partition: partition.clone(),
                        lease,
                        record,
                        trace,
                        state,
                        reading,
                        source,
                        is_confirmed: false,
                        slots: slots.split_off_one(lost),
                    };
                    jobs.push((reading.when(job.deadline()), job));
                }
                Some((record, state)) if state.deadline_after(&record) < MAX_DEADLINE_MS => {
                    release_early(partition, lease);
                }
                // A timer whose deadline never comes, which the script does not check, or whose record cannot be decoded,
                // becomes a dead letter.
                _ => {
                    debug!(topic = ?partition.topic, "a claimed record cannot be read");
                    let (reason, history) = (DeadReason::Unreadable, Bytes::new());
                    partition.settle_unrun(lease, AttemptEnd::Dead { reason, history });
                }
            }
        }
        slots.release_unused();
        jobs
    }
}

fn decode(timer: ClaimedTimer, token: Token) -> Option<(Record, State)> {
    let record = Record::decode(timer.record).ok()?;
    let state = match timer.state {
        None => State::first(token),
        Some(bytes) => State::decode(bytes).ok()?,
    };
    Some((record, state))
}

/// Releases a timer whose index entry is earlier than the deadline in its record. It must not occupy a slot until
/// that deadline.
fn release_early(partition: &Partition, lease: Lease) {
    let (topic, key) = (&partition.topic, Escaped(&lease.held.key));
    warn!(
        ?topic, %key,
        "repaired an index entry that was earlier than its record: does another program write to keylapse's names?"
    );
    topic.stats.repaired.add(1);
    partition.settle_unrun(lease, AttemptEnd::Release);
}

/// The maximum bytes of keys, records and states in one claim, beyond which the script reads no more.
const MAX_CLAIM_BYTES: usize = 1 << 20;
/// The time after a change of the size before claims ask for more.
const CLAIM_GROWTH_PAUSE: Duration = Duration::from_secs(60);

/// The size of the answers that one claimer asks for. A server may close the connection rather than send a large answer,
/// and its limit is unknown. Each repeat of an unanswered claim therefore asks for half as much, down to a single timer.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerSize {
    /// How often the size is halved.
    halved: u32,
    /// When `halved` was last changed.
    changed: Option<Instant>,
}

impl AnswerSize {
    /// Returns how many bytes the next claim asks for, after `lost` lost answers in a row.
    fn limit_after(self, lost: u32) -> usize {
        MAX_CLAIM_BYTES.checked_shr(self.halved + lost).unwrap_or_default().max(1)
    }

    /// Adapts the size to an answer that followed `lost` lost ones. An answer below the limit changes nothing: its size was
    /// not the cause, and no larger answer is needed.
    fn adapt(&mut self, lost: u32, timers: &[ClaimedTimer]) {
        let bytes = |one: &ClaimedTimer| {
            one.key.len() + one.record.len() + one.state.as_ref().map_or(0, |state| state.len())
        };
        if timers.iter().map(bytes).sum::<usize>() < self.limit_after(lost) {
            return;
        }
        let halved = match lost {
            0 if self.changed.is_none_or(|at| at.elapsed() >= CLAIM_GROWTH_PAUSE) => {
                self.halved.saturating_sub(1)
            }
            _ => (self.halved + lost).min(MAX_CLAIM_BYTES.ilog2()),
        };
        if halved != self.halved {
            *self = Self { halved, changed: Some(Instant::now()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::lapse::Lapse;
    use crate::listener::Listener;
    use crate::outcome::{Done, Failure};
    use crate::rig::Rig;
    use crate::topic::Topic;
    use keylapse_testserver::CallFault;

    /// Makes a claim with these faults. Returns whether it was answered, after how many seconds, and how often it was
    /// made.
    async fn claim(faults: &[(CallFault, usize)]) -> (bool, u64, usize) {
        let bed = Rig::new();
        let topic: Topic<u32> = Topic::new("a:{id}").unwrap();
        let handler = |_: Lapse<u32>| std::future::pending::<Result<Done, Failure>>();
        let listener = Listener::builder(bed.client()).on(topic, handler).build().unwrap();
        let partition = &listener.runtime.partitions[0];
        // The first call creates the partition, even if the call fails.
        partition.store.pause(&partition.names, None).await.unwrap();
        faults.iter().for_each(|(fault, times)| bed.calls().fail("claim", *fault, *times));
        let asked = Instant::now();
        let trouble = &mut ClaimTrouble::default();
        let taken =
            claim_timers(partition, Index::Due, SlotId::random(), 1, 0, QuarantineGroup::ALONE, trouble)
                .await;
        (taken.is_ok(), asked.elapsed().as_secs(), bed.calls().made("claim").len())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_has_taken_nothing_and_is_the_callers_to_ask_again() {
        let refused = CallFault::Refused("LOADING");
        assert_eq!(claim(&[(refused, 1)]).await, (false, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_claim_is_repeated_even_if_repeats_are_refused() {
        let refused = CallFault::Refused("LOADING");
        assert_eq!(claim(&[(CallFault::Unanswered, 1)]).await, (true, 0, 2));
        assert_eq!(claim(&[(CallFault::Unanswered, 2)]).await, (true, 0, 3));
        assert_eq!(claim(&[(CallFault::Unanswered, 1), (refused, 2)]).await, (true, 0, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_claim_fails_after_the_lease_time() {
        let (answered, after, made) = claim(&[(CallFault::Unanswered, 1000)]).await;
        assert!(!answered && (29..=31).contains(&after), "{after} s");
        assert!((30..=80).contains(&made), "{made} claims");
    }

    fn timers(bytes: usize) -> Vec<ClaimedTimer> {
        vec![ClaimedTimer { key: Bytes::new(), record: vec![0; bytes].into(), state: None }]
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_smaller_answer_brought_is_asked_for_until_a_minute_has_passed() {
        let mut size = AnswerSize::default();
        assert_eq!(
            (size.limit_after(0), size.limit_after(3), size.limit_after(20), size.limit_after(99)),
            (MAX_CLAIM_BYTES, MAX_CLAIM_BYTES >> 3, 1, 1)
        );
        size.adapt(3, &timers(MAX_CLAIM_BYTES >> 3));
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES >> 3);
        size.adapt(0, &timers(MAX_CLAIM_BYTES >> 3));
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES >> 3, "it was halved just now");
        tokio::time::advance(CLAIM_GROWTH_PAUSE).await;
        size.adapt(0, &timers(100));
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES >> 3, "no larger answer is needed");
        size.adapt(0, &timers(MAX_CLAIM_BYTES >> 3));
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES >> 2);
        size.adapt(1, &timers(MAX_CLAIM_BYTES >> 3));
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES >> 3, "that was too much");
        for _ in 0..9 {
            tokio::time::advance(CLAIM_GROWTH_PAUSE).await;
            size.adapt(0, &timers(MAX_CLAIM_BYTES));
        }
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES);
    }

    /// For example, the server has closed an idle connection.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_lost_for_another_reason_make_no_claim_smaller() {
        let mut size = AnswerSize::default();
        size.adapt(2, &timers(100));
        assert_eq!(size.limit_after(0), MAX_CLAIM_BYTES);
        size.adapt(40, &timers(1));
        assert_eq!(size.limit_after(0), 1);
    }
}
