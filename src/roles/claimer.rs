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
use crate::roles::claim::{AnsweredClaim, ClaimTrouble, take};
use crate::roles::expirer::MarkerChecks;
use crate::roles::starter::Starter;
use crate::runtime::{DeadlineTimer, Demand, Groups, LookResult, Partition};
use crate::time::ClockReading;
use crate::wire::{Claimed, Index, MAX_BATCH, QuarantineGroup};

/// A claim of this many timers takes long, so its timestamp is old when it arrives.
const MANY: usize = 8;
/// The factor by which the next claim asks for more, while more timers are due than the last claim could take.
const GROWTH: usize = 4;
/// The pause between two calls to other listeners, which may have free slots.
const CALLED_EVERY: Duration = Duration::from_millis(100);
/// The maximum time for which the topic's share of slots is reserved during a claim.
const DEMAND_TIMEOUT: Duration = Duration::from_millis(100);
/// The pause between two calls that only read the server's time.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Claims due timers from one index.
pub(crate) struct Claimer {
    partition: Arc<Partition>,
    starter: Starter,
    touches: MarkerChecks,
    pub(crate) slot: SlotId,
    /// The groups of the quarantine, for a claimer of the quarantine.
    groups: Option<Arc<Groups>>,
    /// Set while due timers of the quarantine wait for room in the group. Has the turn, which keeps other claimers
    /// waiting, and the number of members that had left the group.
    waiting: Option<(OwnedSemaphorePermit, u64)>,
    timer: DeadlineTimer,
    /// The usual number of timers in a claim. A claim in flight holds its slots. If it took all free ones, the claims
    /// of the other partitions would wait for its answer, one after the other.
    share: usize,
    /// The number of timers in the next claim.
    ask: usize,
    /// Set while timers are due, and slots for them are to be taken.
    demand: Option<Demand>,
    /// When other listeners were last called.
    called: Option<Instant>,
    /// When the server's time was last read by a call for it alone.
    asked: Option<Instant>,
    trouble: ClaimTrouble,
}

impl Claimer {
    /// Creates a claimer of the ordinary index.
    pub(crate) fn new(partition: Arc<Partition>, starter: Starter, touches: MarkerChecks) -> Self {
        let config = &partition.topic.config;
        let timer = DeadlineTimer::looking_now(config.lookahead);
        let share = partition.limiter.share(partition.topic.index, config.partitions as usize).min(MAX_BATCH);
        Self {
            share,
            ask: share,
            partition,
            starter,
            touches,
            slot: SlotId::random(),
            groups: None,
            waiting: None,
            timer,
            demand: None,
            called: None,
            asked: None,
            trouble: ClaimTrouble::default(),
        }
    }

    /// Turns it into a claimer of the quarantine, which waits for a wake-up before its first claim.
    pub(crate) fn of_quarantine(self, groups: Arc<Groups>) -> Self {
        let timer = DeadlineTimer::new(Duration::ZERO);
        Self { groups: Some(groups), slot: SlotId::random(), timer, ..self }
    }

    fn index(&self) -> Index {
        if self.groups.is_some() { Index::Quarantine } else { Index::Due }
    }

    /// Claims until it is stopped. Finishes a claim in flight first, since its timers would otherwise wait until
    /// their leases end.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<()>) {
        loop {
            let (source, permits) = tokio::select! {
                biased;
                _ = stopped.changed() => return, // the sender was dropped to stop the claimers
                look = self.next_look() => look,
            };
            let turn = self.waiting.take();
            if self.tick(source, permits).await {
                self.waiting = turn;
            }
        }
    }

    /// Waits until it is time to claim and slots are free. Returns the reason and the slots.
    async fn next_look(&mut self) -> (LapseSource, AttemptSlots) {
        let index = self.index();
        let Self { partition, starter, groups, waiting, timer, ask, demand, called, .. } = self;
        loop {
            let ready = async {
                let source = timer.due(partition.wakeup_of(index), &partition.clock).await;
                partition.outbox.room().await;
                starter.until_it_runs(|| call_others(partition)).await;
                source
            };
            let source = hold_demand(demand, std::future::ready(()), ready).await;
            if let Some(groups) = groups {
                match waiting.take() {
                    Some((turn, left)) => {
                        groups.more_room(left).await;
                        *waiting = Some((turn, groups.left()));
                    }
                    None => *waiting = groups.turn().await.map(|turn| (turn, groups.left())),
                }
            }
            let permits = AttemptSlots::take(partition, *ask, groups.as_ref());
            if permits.count() > 0 {
                return (source, permits);
            }
            let waits = || partition.limiter.demand(partition.topic.index);
            match groups {
                None => {
                    let rested = called.map_or_else(Instant::now, |at| at + CALLED_EVERY);
                    let free = demand.get_or_insert_with(waits).free();
                    free_or_call(partition, free, timer.left_lying().max(rested), called).await;
                }
                Some(groups) if groups.room() == 0 => {}
                // All slots are in use. Waits for a slot of the topic, or for a member that leaves the group, which
                // may free the spare slot.
                Some(groups) => {
                    let left = waiting.take().map_or(0, |(_, left)| left);
                    let waits = waits();
                    tokio::select! {
                        () = waits.free() => {}
                        () = groups.more_room(left) => {}
                    }
                }
            }
        }
    }

    /// Claims once. Returns whether due timers are left that did not fit into the group.
    async fn tick(&mut self, source: LapseSource, permits: AttemptSlots) -> bool {
        self.timer.begin();
        let group = self.groups.as_ref().map_or(QuarantineGroup::ALONE, |groups| groups.group());
        let (index, slot, reach) = (self.index(), self.slot, self.timer.reach());
        let claim = take(&self.partition, index, slot, permits.count(), reach, group, &mut self.trouble);
        let limit = async { tokio::time::sleep(DEMAND_TIMEOUT).await };
        let Ok(taken) = hold_demand(&mut self.demand, limit, claim).await else {
            // Other partitions may need the slots.
            permits.give_back_unused();
            self.demand = None;
            self.timer.failed(source);
            return false;
        };
        self.learn(&taken, source);
        self.read_server_time(taken.claimed.timers.len());
        let Claimed { heads, stamp, paused, timers, .. } = &taken.claimed;
        let is_due = paused.is_none() && heads.quarantine.is_some_and(|ms| ms <= stamp.ms());
        let did_not_fit = is_due && timers.len() < permits.count();
        self.dispatch(taken, permits, source);
        did_not_fit && self.groups.as_ref().is_some_and(|groups| groups.is_limited())
    }

    /// Plans the next claim by the answer, in this index and in the other one.
    fn learn(&mut self, taken: &AnsweredClaim, source: LapseSource) {
        let (heads, reading) = (taken.claimed.heads, taken.reading);
        let (own, other, of_other) = if self.groups.is_some() {
            (heads.quarantine, heads.due, &self.partition.wakeup)
        } else {
            self.partition.note_look(reading);
            (heads.due, heads.quarantine, &self.partition.quarantine)
        };
        let reach = taken.claimed.stamp.ms().saturating_add_signed(self.timer.reach());
        let more = own.is_some_and(|ms| ms <= reach) && taken.claimed.paused.is_none();
        self.ask = if more { (self.ask * GROWTH).min(MAX_BATCH) } else { self.share };
        // More timers of the quarantine may be due than its group has room for, so only the ordinary index creates
        // demand.
        self.demand = self.demand.take().filter(|_| more);
        if more && self.groups.is_none() {
            let demand = || self.partition.limiter.demand(self.partition.topic.index);
            self.demand.get_or_insert_with(demand);
        }
        if let Some(ms) = other {
            of_other.head(ms);
        }
        let seen = LookResult {
            reading,
            stamp: taken.claimed.stamp,
            head: own.filter(|_| taken.claimed.paused.is_none()),
            empty: taken.claimed.timers.is_empty(),
            rival: taken.claimed.other_claimed_at.filter(|_| self.groups.is_none()),
            standby: taken.claimed.standby,
        };
        if self.timer.learn(seen, source) {
            debug!(topic = %self.partition.topic.config.name, "another listener leads");
        }
    }

    /// Reads the server's time after a large claim, whose own timestamp is imprecise. The next claim uses the answer.
    fn read_server_time(&mut self, claimed: usize) {
        if claimed < MANY || self.asked.is_some_and(|asked| asked.elapsed() < ASKED_EVERY) {
            return;
        }
        let (partition, sent) = (self.partition.clone(), Instant::now());
        self.asked = Some(sent);
        tokio::spawn(async move {
            if let Ok(stamp) = partition.store.time_of(partition.names.key("due")).await {
                partition.clock.read(sent, ClockReading::now(stamp));
            }
        });
    }

    fn dispatch(&self, taken: AnsweredClaim, permits: AttemptSlots, source: LapseSource) {
        let jobs = taken.into_jobs(&self.partition, source, permits);
        if jobs.is_empty() {
            return;
        }
        if self.partition.topic.config.marker_keys {
            let latest = jobs.iter().map(|(at, _)| *at).max();
            self.touches.plan(latest, jobs.iter().map(|(_, job)| job.lease.held.key.clone()));
        }
        self.starter.hold(jobs.into_iter());
    }
}

/// Awaits `work`, and keeps the demand for slots until then, or until `limit` completes.
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

/// Waits for a free slot. If none is free at `by`, calls the listeners that follow this one, which leave due timers
/// to it.
async fn free_or_call(
    partition: &Arc<Partition>,
    free: impl Future<Output = ()>,
    by: Instant,
    called: &mut Option<Instant>,
) {
    let mut free = pin!(free);
    if tokio::time::timeout_at(by, &mut free).await.is_ok() {
        return;
    }
    *called = Some(Instant::now());
    call_others(partition);
    free.await;
}

/// Wakes resting listeners, as more timers are due than this listener has capacity for.
fn call_others(partition: &Arc<Partition>) {
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
        let permits = ConcurrencyLimiter::new(1, &[(1, Priority::Normal)], false);
        let kept = async |limit: u64, takes: u64| {
            let mut demand = Some(permits.demand(0));
            let (limit, work) = (Duration::from_millis(limit), Duration::from_millis(takes));
            let began = Instant::now();
            hold_demand(&mut demand, sleep(limit), sleep(work)).await;
            assert_eq!(began.elapsed(), work);
            demand.is_some()
        };
        assert_eq!((kept(100, 0).await, kept(100, 99).await, kept(100, 101).await), (true, true, false));
        let mut demand = Some(permits.demand(0));
        hold_demand(&mut demand, std::future::ready(()), std::future::ready(())).await;
        assert!(demand.is_some());
        hold_demand(&mut demand, std::future::ready(()), sleep(Duration::from_millis(1))).await;
        assert!(demand.is_none(), "work that is not ready may take forever");
    }
}
