//! Claims due timers from one index of a partition, and passes them to the starter.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use crate::id::SlotId;
use crate::lapse::LapseSource;
use crate::log::debug;
use crate::roles::attempt::AttemptSlots;
use crate::roles::claim::{AnsweredClaim, ClaimTrouble, claim_timers};
use crate::roles::expirer::MarkerChecks;
use crate::roles::starter::Starter;
use crate::runtime::{DeadlineTimer, Demand, Partition, QuarantineGroups, WakeResult};
use crate::time::ClockReading;
use crate::wire::{Claimed, Index, MAX_BATCH, QuarantineGroup};

/// A claim of this many timers takes long, so its timestamp is outdated when it arrives.
const LARGE_CLAIM: usize = 8;
/// The factor by which the next claim is larger, while more timers are due than the last claim could take.
const CLAIM_SIZE_GROWTH: usize = 4;
/// The least time between two wake-ups of followers, which may have free slots.
const WAKE_FOLLOWERS_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum time for which the demand of a claimer holds during a claim.
const DEMAND_TIMEOUT: Duration = Duration::from_millis(100);
/// The least time between two calls that only read the server's time.
const READ_TIME_INTERVAL: Duration = Duration::from_millis(100);

/// Claims due timers from one index.
pub(crate) struct Claimer {
    partition: Arc<Partition>,
    starter: Starter,
    marker_checks: MarkerChecks,
    /// The ID of this claimer in Redis.
    pub(crate) id: SlotId,
    /// Set for a claimer of the quarantine.
    groups: Option<Arc<QuarantineGroups>>,
    /// The turn of a claimer of the quarantine, without which it does not claim. Kept while its due timers wait for room in
    /// the group, with the number of members that had left the group when it last claimed.
    quarantine_turn: Option<(OwnedSemaphorePermit, u64)>,
    timer: DeadlineTimer,
    /// The usual number of timers in a claim. A claim in flight holds its slots. If it took all free ones, the claims
    /// of the other partitions would wait for its answer, one after the other.
    usual_claim_size: usize,
    /// The number of timers in the next claim.
    claim_size: usize,
    /// Set while timers are due that the last claim could not take, or while this claimer waits for a slot.
    demand: Option<Demand>,
    /// When followers were last woken because this claimer had no free slot.
    followers_woken_at: Option<Instant>,
    /// When the last call was sent that only reads the server's time.
    time_read_at: Option<Instant>,
    trouble: ClaimTrouble,
}

impl Claimer {
    /// Creates a claimer of the ordinary index.
    pub(crate) fn new(partition: Arc<Partition>, starter: Starter, marker_checks: MarkerChecks) -> Self {
        let config = &partition.topic.config;
        let timer = DeadlineTimer::due_now(config.lookahead);
        let usual_claim_size = partition
            .limiter
            .slots_per_partition(partition.topic.index, config.partitions as usize)
            .min(MAX_BATCH);
        Self {
            usual_claim_size,
            claim_size: usual_claim_size,
            partition,
            starter,
            marker_checks,
            id: SlotId::random(),
            groups: None,
            quarantine_turn: None,
            timer,
            demand: None,
            followers_woken_at: None,
            time_read_at: None,
            trouble: ClaimTrouble::default(),
        }
    }

    /// Turns this into a claimer of the quarantine, which waits for a wake-up before its first claim.
    pub(crate) fn of_quarantine(self, groups: Arc<QuarantineGroups>) -> Self {
        let timer = DeadlineTimer::new(Duration::ZERO);
        Self { groups: Some(groups), id: SlotId::random(), timer, ..self }
    }

    fn index(&self) -> Index {
        if self.groups.is_some() { Index::Quarantine } else { Index::Due }
    }

    /// Claims until it is stopped. Finishes a claim in flight first, since its timers would otherwise wait until
    /// their leases end.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<()>) {
        loop {
            let (source, slots) = tokio::select! {
                biased;
                _ = stopped.changed() => return, // the sender was dropped to stop the claimers
                ready = self.next_claim() => ready,
            };
            let turn = self.quarantine_turn.take();
            if self.tick(source, slots).await {
                self.quarantine_turn = turn;
            }
        }
    }

    /// Waits until a claim is due and slots for it are free. Returns the reason of the claim and the slots.
    async fn next_claim(&mut self) -> (LapseSource, AttemptSlots) {
        let index = self.index();
        let Self {
            partition,
            starter,
            groups,
            quarantine_turn,
            timer,
            claim_size,
            demand,
            followers_woken_at,
            ..
        } = self;
        loop {
            let ready = async {
                let source = timer.due(partition.wakeup_of(index), &partition.clock).await;
                partition.outbox.wait_for_room().await;
                starter.wait_while_stalled(|| wake_followers(partition)).await;
                source
            };
            let source = hold_demand(demand, std::future::ready(()), ready).await;
            if let Some(groups) = groups {
                match quarantine_turn.take() {
                    Some((turn, departed)) => {
                        groups.wait_for_room(departed).await;
                        *quarantine_turn = Some((turn, groups.departed()));
                    }
                    None => {
                        *quarantine_turn = groups.wait_for_turn().await.map(|turn| (turn, groups.departed()));
                    }
                }
            }
            let slots = AttemptSlots::take(partition, *claim_size, groups.as_ref());
            if slots.count() > 0 {
                return (source, slots);
            }
            let new_demand = || partition.limiter.demand(partition.topic.index);
            match groups {
                None => {
                    let not_before =
                        followers_woken_at.map_or_else(Instant::now, |at| at + WAKE_FOLLOWERS_INTERVAL);
                    let free = demand.get_or_insert_with(new_demand).wait_for_slot();
                    wait_for_slot_or_wake_followers(
                        partition,
                        free,
                        timer.unclaimed_at().max(not_before),
                        followers_woken_at,
                    )
                    .await;
                }
                Some(groups) if groups.room() == 0 => {}
                // All slots are in use. Waits for a slot of the topic, or for a member that leaves the group, which
                // may free the spare slot.
                Some(groups) => {
                    let departed = quarantine_turn.take().map_or(0, |(_, departed)| departed);
                    let demand = new_demand();
                    tokio::select! {
                        () = demand.wait_for_slot() => {}
                        () = groups.wait_for_room(departed) => {}
                    }
                }
            }
        }
    }

    /// Claims once. Returns true if due timers of the quarantine are left that did not fit into the group, but may later.
    async fn tick(&mut self, source: LapseSource, slots: AttemptSlots) -> bool {
        self.timer.begin();
        let group = self.groups.as_ref().map_or(QuarantineGroup::ALONE, |groups| groups.limits());
        let (index, id, reach) = (self.index(), self.id, self.timer.reach());
        let claim = claim_timers(&self.partition, index, id, slots.count(), reach, group, &mut self.trouble);
        let limit = async { tokio::time::sleep(DEMAND_TIMEOUT).await };
        let Ok(taken) = hold_demand(&mut self.demand, limit, claim).await else {
            // Other partitions may need the slots.
            slots.release_unused();
            self.demand = None;
            self.timer.plan_retry(source);
            return false;
        };
        self.plan_next(&taken, source);
        self.read_server_time(taken.claimed.timers.len());
        let Claimed { heads, stamp, paused, timers, .. } = &taken.claimed;
        let is_due = paused.is_none() && heads.quarantine.is_some_and(|ms| ms <= stamp.ms());
        let did_not_fit = is_due && timers.len() < slots.count();
        self.dispatch(taken, slots, source);
        did_not_fit && self.groups.as_ref().is_some_and(|groups| groups.is_limited())
    }

    /// Plans the next claim by the answer. Announces the next deadline of the other index to the other index's claimer.
    fn plan_next(&mut self, taken: &AnsweredClaim, source: LapseSource) {
        let (heads, reading) = (taken.claimed.heads, taken.reading);
        let (own, other, of_other) = if self.groups.is_some() {
            (heads.quarantine, heads.due, &self.partition.due_wakeup)
        } else {
            self.partition.note_claim(reading);
            (heads.due, heads.quarantine, &self.partition.quarantine_wakeup)
        };
        let reach = taken.claimed.stamp.ms().saturating_add_signed(self.timer.reach());
        let more = own.is_some_and(|ms| ms <= reach) && taken.claimed.paused.is_none();
        self.claim_size =
            if more { (self.claim_size * CLAIM_SIZE_GROWTH).min(MAX_BATCH) } else { self.usual_claim_size };
        // More timers of the quarantine may be due than its group has room for, so only the ordinary index creates
        // demand.
        self.demand = self.demand.take().filter(|_| more);
        if more && self.groups.is_none() {
            let demand = || self.partition.limiter.demand(self.partition.topic.index);
            self.demand.get_or_insert_with(demand);
        }
        if let Some(ms) = other {
            of_other.announce_deadline(ms);
        }
        let seen = WakeResult {
            reading,
            stamp: taken.claimed.stamp,
            head: own.filter(|_| taken.claimed.paused.is_none()),
            empty: taken.claimed.timers.is_empty(),
            rival: taken.claimed.other_claimed_at.filter(|_| self.groups.is_none()),
            standby: taken.claimed.standby,
        };
        if self.timer.plan_next(seen, source) {
            debug!(topic = %self.partition.topic.config.name, "another listener leads");
        }
    }

    /// Reads the server's time in a separate task after a large claim, whose own timestamp is imprecise.
    fn read_server_time(&mut self, claimed: usize) {
        if claimed < LARGE_CLAIM
            || self.time_read_at.is_some_and(|asked| asked.elapsed() < READ_TIME_INTERVAL)
        {
            return;
        }
        let (partition, sent) = (self.partition.clone(), Instant::now());
        self.time_read_at = Some(sent);
        tokio::spawn(async move {
            if let Ok(stamp) = partition.store.time_of(partition.names.key("due")).await {
                partition.clock.update(sent, ClockReading::now(stamp));
            }
        });
    }

    /// Plans the check of the claimed timers' marker keys, and passes the timers to the starter.
    fn dispatch(&self, taken: AnsweredClaim, slots: AttemptSlots, source: LapseSource) {
        let jobs = taken.into_jobs(&self.partition, source, slots);
        if jobs.is_empty() {
            return;
        }
        if self.partition.topic.config.marker_keys {
            let latest = jobs.iter().map(|(at, _)| *at).max();
            self.marker_checks.plan(latest, jobs.iter().map(|(_, job)| job.lease.held.key.clone()));
        }
        self.starter.add(jobs.into_iter());
    }
}

/// Awaits `work`. Drops the demand for slots if `limit` completes first.
async fn hold_demand<T>(
    demand: &mut Option<Demand>,
    limit: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    if demand.is_some() {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = limit => *demand = None,
        }
    }
    work.await
}

/// Waits for a free slot. If none is free at `by`, wakes the listeners that follow this one and leave due timers to it.
async fn wait_for_slot_or_wake_followers(
    partition: &Arc<Partition>,
    free: impl Future<Output = ()>,
    by: Instant,
    followers_woken_at: &mut Option<Instant>,
) {
    let mut free = pin!(free);
    if tokio::time::timeout_at(by, &mut free).await.is_ok() {
        return;
    }
    *followers_woken_at = Some(Instant::now());
    wake_followers(partition);
    free.await;
}

/// Wakes the followers of this partition in a separate task, as more timers are due than this listener has capacity for.
fn wake_followers(partition: &Arc<Partition>) {
    let partition = partition.clone();
    tokio::spawn(async move {
        if let Err(error) = partition.store.wake_followers(&partition.names).await {
            debug!(topic = %partition.topic.config.name, %error, "cannot wake other listeners, though more timers are due than this one has capacity for");
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::runtime::ConcurrencyLimiter;
    use crate::topic::Priority;

    #[tokio::test(start_paused = true)]
    async fn slots_are_reserved_until_the_limit() {
        let limiter = ConcurrencyLimiter::new(1, &[(1, Priority::Normal)], false);
        let kept = async |limit: u64, takes: u64| {
            let mut demand = Some(limiter.demand(0));
            let (limit, work) = (Duration::from_millis(limit), Duration::from_millis(takes));
            let began = Instant::now();
            hold_demand(&mut demand, sleep(limit), sleep(work)).await;
            assert_eq!(began.elapsed(), work);
            demand.is_some()
        };
        assert_eq!((kept(100, 0).await, kept(100, 99).await, kept(100, 101).await), (true, true, false));
        let mut demand = Some(limiter.demand(0));
        hold_demand(&mut demand, std::future::ready(()), std::future::ready(())).await;
        assert!(demand.is_some());
        hold_demand(&mut demand, std::future::ready(()), sleep(Duration::from_millis(1))).await;
        assert!(demand.is_none(), "work that is not ready may take forever");
    }
}
