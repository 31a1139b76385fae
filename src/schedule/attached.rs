//! What attaching to a topic's keys would mean, and what there is of it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::Result;
use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::time::system_time;
use crate::topic::{Topic, TopicConfig};
use crate::wire::copy::{NOT_COPIED, TOO_LARGE};
use crate::wire::{AttachedHoldings, Found, Life};

/// What would become of a topic's keys if it were attached: see [`Schedule::plan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachPlan {
    /// Keys that match the topic's pattern, without those that are too long.
    pub matching: u64,
    /// Keys of these that have a deadline.
    pub with_deadline: u64,
    /// Keys of these that would be enrolled: as many as [`cap`](crate::Attached::cap) has room for.
    pub enrolled: u64,
    /// Keys with a deadline whose values would be copied.
    pub copies: u64,
    /// The bytes of these copies, which Redis would keep once more.
    pub copy_bytes: u64,
    /// Keys with a deadline whose values are too large for the topic to copy.
    pub too_large: u64,
    /// Keys of more than 4 KiB, which would be left alone.
    pub too_long: u64,
    /// How long it took to look at all keys of the database, as it would take a scan.
    pub took: Duration,
}

/// What there is of an attached topic in Redis: see [`Schedule::attached_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedCounts {
    /// Keys that are enrolled.
    pub enrolled: u64,
    /// When the next of them is looked at: just after its deadline, or a quarter of a second before that for its value.
    pub next_check: Option<SystemTime>,
    /// Keys whose expiries are remembered, so that each fires once. One that is on both pages counts twice.
    pub histories: u64,
    /// Lapses that wait, run, or wait for a retry, without those that are kept behind another of the same key.
    pub lapses: u64,
}

impl Schedule {
    /// Looks at what attaching a topic would mean, and writes nothing: the topic need not exist, and does not
    /// afterwards.
    ///
    /// It goes through all keys of the database once, at the topic's [`scan_rate`](crate::Attached::scan_rate), as a
    /// listener's scan does, and reads those that match with their values, as enrolling them would. What another topic
    /// has a better claim to counts, too, and so does a key once more that the server names twice, as it may while its
    /// table of keys grows or shrinks. Reading a key that has expired makes the server delete it, as any reading does.
    ///
    /// ```no_run
    /// use keylapse::{Attached, Schedule, Topic};
    ///
    /// # async fn plan() -> keylapse::Result<()> {
    /// let unpaid = Attached::new(Topic::<u64>::new("order:unpaid:{id}")?).keep_values(4096);
    /// let schedule = Schedule::connect("redis://127.0.0.1/").await?;
    /// let plan = schedule.plan(unpaid.topic()).await?;
    /// println!("{} of {} keys would be enrolled, with {} bytes of values", plan.enrolled, plan.matching, plan.copy_bytes);
    /// println!("a scan takes {:?}; {} keys are too long", plan.took, plan.too_long);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the server cannot be reached or refuses: the user needs the rights of a listener. Of kind
    /// [`Invalid`](crate::ErrorKind::Invalid) if the topic is not an attached one.
    pub async fn plan<T>(&self, topic: &Topic<T>) -> Result<AttachPlan> {
        let (config, policy) = (&topic.config, topic.config.policy_for("plan")?);
        config.check(&self.client.namespace)?;
        let (store, capture) = (&self.client.store, policy.capture());
        let mut planner = Planner::new(config, policy);
        let began = Instant::now();
        let mut scan = self.scan(&config.pattern, policy.scan_rate).await?;
        while let Some(keys) = scan.next().await? {
            planner.plan.matching += keys.len() as u64;
            for keys in keys.chunks(planner.page) {
                let found = self.persist(|_| store.read(keys, &capture)).await?;
                planner.add(keys, found);
            }
        }
        planner.plan.too_long = scan.too_long;
        Ok(planner.end(began.elapsed()))
    }

    /// What there is of an attached topic now, over all partitions. It costs the server some microseconds for each
    /// partition, however many keys are enrolled, and writes nothing.
    ///
    /// ```no_run
    /// # async fn count(schedule: keylapse::Schedule) -> keylapse::Result<()> {
    /// let orders = keylapse::Attached::new(keylapse::Topic::<u64>::new("order:unpaid:{id}")?);
    /// let counts = schedule.attached_counts(orders.topic()).await?;
    /// println!("{} orders are enrolled, {} have lapsed and are not done", counts.enrolled, counts.lapses);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the server cannot be reached or refuses. Of kind [`Invalid`](crate::ErrorKind::Invalid) if the topic is not
    /// an attached one.
    pub async fn attached_counts<T>(&self, topic: &Topic<T>) -> Result<AttachedCounts> {
        topic.config.policy_for("attached_counts")?;
        topic.config.check(&self.client.namespace)?;
        let (mut counts, mut next) = (AttachedCounts::default(), None::<u64>);
        for at in &topic.config.all_partitions(&self.client.namespace) {
            let held = self.persist(|_| self.client.store.attached_holdings(at)).await?;
            let AttachedHoldings { enrolled, next_check, histories, lapses } = held;
            counts.enrolled += enrolled;
            counts.histories += histories;
            counts.lapses += lapses;
            next = next.into_iter().chain(next_check).min();
        }
        counts.next_check = next.map(system_time);
        Ok(counts)
    }
}

/// Counts on its way through the keys.
struct Planner<'a> {
    config: &'a TopicConfig,
    policy: &'a Policy,
    /// Keys in one call.
    page: usize,
    plan: AttachPlan,
    by_partition: HashMap<usize, usize>,
}

impl<'a> Planner<'a> {
    fn new(config: &'a TopicConfig, policy: &'a Policy) -> Self {
        let page = policy.capture().keys_in_touch();
        Self { config, policy, page, plan: AttachPlan::default(), by_partition: HashMap::new() }
    }

    fn add(&mut self, keys: &[Bytes], found: Vec<Found>) {
        for (key, Found { life, copy, .. }) in keys.iter().zip(found) {
            if !matches!(life, Life::Until(_)) {
                continue;
            }
            self.plan.with_deadline += 1;
            *self.by_partition.entry(self.config.partition_of(key)).or_default() += 1;
            match copy.first() {
                None | Some(&NOT_COPIED) => {}
                Some(&TOO_LARGE) => self.plan.too_large += 1,
                Some(_) => {
                    self.plan.copies += 1;
                    self.plan.copy_bytes += copy.len() as u64;
                }
            }
        }
    }

    fn end(self, took: Duration) -> AttachPlan {
        let cap = self.policy.cap_of_partition(self.config.partitions);
        let enrolled = self.by_partition.values().map(|keys| (*keys).min(cap) as u64).sum();
        AttachPlan { enrolled, took, ..self.plan }
    }
}
