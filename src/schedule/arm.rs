//! Arming timers: one, and what arming many shares with it.

use std::future::IntoFuture;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::lapse::RUNNING;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::{When, unix_ms};
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arm, Arming, Durably, NewTimer, PartitionNames, Trigger, TriggerKey};

/// An arm, about to be made: set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is armed until the request is awaited"]
pub struct ArmRequest<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    timer: Result<NewTimer>,
    only_if_absent: bool,
    durably: Option<Durably>,
}

impl Schedule {
    /// Arms a timer, in place of one that waits under the same key.
    ///
    /// `key` gives the pattern's captures in their order, or a whole
    /// [`Key`](super::Key). `when` is a delay, or a time by the server's clock;
    /// what has passed fires now.
    ///
    /// What a handler arms for its own key, in the task that runs it, says so: should that attempt take its listener
    /// down for the last time, it goes to the dead letters with it
    /// ([`DeadReason::Inherited`](crate::DeadReason::Inherited)), instead of doing the same again.
    ///
    /// # Errors
    /// Refused at once, with nothing sent: a key or payload that is too long or
    /// not of the topic, a delay over 100 years. From the server: out of memory,
    /// read-only, no permission, unreachable. If the answer stays lost, the kind
    /// is [`Unknown`](crate::ErrorKind::Unknown), and the error names the arming's id.
    pub fn arm<'a, T>(
        &'a self,
        topic: &'a Topic<T>,
        key: impl KeyArgs,
        when: impl Into<When>,
        payload: &T,
    ) -> ArmRequest<'a> {
        let timer = self.new_timer(topic, &key, when.into(), payload);
        ArmRequest { schedule: self, config: &topic.config, timer, only_if_absent: false, durably: None }
    }
}

impl ArmRequest<'_> {
    /// Leaves an existing timer alone, and answers [`Arming::Exists`].
    pub fn only_if_absent(mut self) -> Self {
        self.only_if_absent = true;
        self
    }

    /// Waits until the arming has travelled this far, and reports how far it got.
    pub fn durably(mut self, ask: Durably) -> Self {
        self.durably = Some(ask);
        self
    }

    async fn send(self) -> Result<Arming> {
        let Self { schedule, config, timer, only_if_absent, durably } = self;
        let timer = timer?;
        let at = schedule.partition_of(config, &timer.key).await?;
        let mut armings = schedule.arm_batch(config, &at, &[timer], only_if_absent, durably).await;
        armings.pop().unwrap_or_else(|| Err(Error::invalid("an arm without an answer")))
    }
}

impl<'a> IntoFuture for ArmRequest<'a> {
    type Output = Result<Arming>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

impl Schedule {
    /// Everything about an arm that can be refused before it is sent.
    pub(super) fn new_timer<T>(
        &self,
        topic: &Topic<T>,
        key: &impl KeyArgs,
        when: When,
        payload: &T,
    ) -> Result<NewTimer> {
        let key = self.key_of(&topic.config, key)?;
        let payload = (topic.codec.encode)(payload).map_err(|error| error.at_key(&key))?;
        topic.config.check_payload(&key, &payload)?;
        let when = when.resolve().map_err(|error| error.at_key(&key))?;
        Ok(NewTimer { key, when, arming: ArmingId::random(), payload })
    }

    /// Arms timers of one partition in one call, each with its own result.
    pub(super) async fn arm_batch(
        &self,
        config: &TopicConfig,
        at: &PartitionNames,
        timers: &[NewTimer],
        only_if_absent: bool,
        durably: Option<Durably>,
    ) -> Vec<Result<Arming>> {
        let store = &self.client.store;
        let by = RUNNING.try_with(|arming| *arming).ok();
        let call = |repeat| async move {
            let call = Arm { timers, only_if_absent, repeat, by };
            match durably {
                None => store.arm(at, call).await,
                Some(ask) => store.arm_durably(at, call, ask).await,
            }
        };
        match self.persist(call).await {
            Ok(mut armings) => {
                self.set_triggers(config, timers, &mut armings).await;
                armings.into_iter().map(Ok).collect()
            }
            Err(error) => timers.iter().map(|timer| Err(failed(error.clone(), timer))).collect(),
        }
    }

    /// Sets the trigger keys of what was armed, after the index: a missing
    /// trigger needs no repair, and a failure is no failure of the arm.
    async fn set_triggers(&self, config: &TopicConfig, timers: &[NewTimer], armings: &mut [Arming]) {
        if !config.triggers {
            return;
        }
        let standing = timers.iter().zip(armings).filter_map(|(timer, arming)| {
            let (receipt, moved) = match arming {
                Arming::Armed(receipt) => (receipt, false),
                Arming::Replaced(receipt) => (receipt, true),
                Arming::AfterRunning(_) | Arming::Exists | Arming::Superseded => return None,
            };
            let deadline = unix_ms(receipt.deadline);
            Some((Trigger { key: timer.key.clone(), deadline, attempt: 1, moved }, receipt))
        });
        let (triggers, receipts): (Vec<_>, Vec<_>) = standing.unzip();
        if triggers.is_empty() {
            return;
        }
        let placed = self.client.store.set_triggers(&triggers).await;
        let placed = placed.unwrap_or_else(|error| vec![TriggerKey::Failed(error); triggers.len()]);
        receipts.into_iter().zip(placed).for_each(|(receipt, placed)| receipt.trigger = placed);
    }
}

/// Names the key, and where nobody knows whether it was armed, the arming.
fn failed(error: Error, timer: &NewTimer) -> Error {
    let error = error.at_key(&timer.key);
    if error.is_unknown() { error.of_arming(timer.arming) } else { error }
}
