//! Arming timers: one, and what arming many shares with it.

use std::future::IntoFuture;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::lapse::RUNNING;
use crate::lock::lock;
use crate::log::debug;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::{When, unix_ms};
use crate::topic::{Topic, TopicConfig};
use crate::trace::{Inject, Traceparent};
use crate::wire::{Arm, Arming, Durably, NewTimer, PartitionNames, Record, State, Trigger, TriggerKey};

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
    /// Dropped while it waits, as by a timeout around it, it may have armed the timer,
    /// with its trigger key or without: the timer then fires all the same. Another arm
    /// of the key has the last word, and sets a trigger key that is missing, also
    /// where it leaves the timer alone ([`only_if_absent`](ArmRequest::only_if_absent)).
    /// A client's [`patience`](crate::Client::patience) ends the waiting without this doubt.
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
    /// not of the topic, a delay over the topic's [`max_delay`](Topic::max_delay). From
    /// the server: out of memory, read-only, no permission, unreachable. If the answer
    /// stays lost, the kind is [`Unknown`](crate::ErrorKind::Unknown), and the error
    /// names the arming's id.
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

    /// Carries this span's context to the handler: a W3C `traceparent`, such as
    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. See [`Schedule::trace`] for all arms at once.
    pub fn traceparent(mut self, traceparent: &str) -> Self {
        self.timer = self.timer.and_then(|timer| match Traceparent::parse(traceparent) {
            None => Err(Error::invalid("this is no traceparent as W3C writes it").at_key(&timer.key)),
            trace => Ok(NewTimer { trace, ..timer }),
        });
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
        let when = when.resolve(topic.config.max_delay).map_err(|error| error.at_key(&key))?;
        let trace = self.inject.as_ref().and_then(Inject::ask);
        Ok(NewTimer { key, when, arming: ArmingId::random(), payload, trace })
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
        let with_triggers = if config.triggers { timers } else { &[] };
        let mut unfinished = Unfinished { schedule: self, timers: with_triggers };
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
                self.finish_earlier(at, timers, &armings).await;
                unfinished.timers = &[];
                armings.into_iter().map(Ok).collect()
            }
            Err(error) => {
                if !error.is_unknown() {
                    unfinished.timers = &[];
                }
                timers.iter().map(|timer| Err(failed(error.clone(), timer))).collect()
            }
        }
    }

    /// Sets the trigger keys that earlier arms may have left out, of timers that were left alone.
    async fn finish_earlier(&self, at: &PartitionNames, timers: &[NewTimer], armings: &[Arming]) {
        for timer in self.take_unfinished(timers, armings) {
            if let Err(error) = self.set_trigger_of(at, &timer.key).await {
                debug!(topic = %at.topic, %error, "a missing trigger key was not set");
            }
        }
    }

    /// Those of these timers that were left alone, after an arm that has not ended. All are forgotten.
    fn take_unfinished<'a>(&self, timers: &'a [NewTimer], armings: &[Arming]) -> Vec<&'a NewTimer> {
        let mut unfinished = lock(&self.unfinished);
        if unfinished.is_empty() {
            return Vec::new();
        }
        let known = timers.iter().zip(armings).filter(|(timer, _)| unfinished.remove(&timer.key));
        known.filter(|(_, arming)| **arming == Arming::Exists).map(|(timer, _)| timer).collect()
    }

    /// The trigger key of a timer that waits, as it stands in Redis.
    async fn set_trigger_of(&self, at: &PartitionNames, key: &Bytes) -> Result<()> {
        let store = &self.client.store;
        let Some(look) = store.look(at, key).await? else { return Ok(()) };
        let state = look.state.map_or(Ok(State::waiting(1)), State::decode);
        if let (Ok(record), Ok(state)) = (Record::decode(look.record), state)
            && !state.claimed
        {
            let (deadline, attempt) = (state.deadline_after(&record), state.attempt);
            store.set_triggers(&[Trigger { key: key.clone(), deadline, attempt, moved: true }]).await?;
        }
        Ok(())
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

/// Keys that are remembered of arms without an end. What comes after so many is remembered instead.
const UNFINISHED: usize = 1000;

/// An arm on its way. One that is dropped, or stays without an answer, may have left timers without their
/// trigger keys.
struct Unfinished<'a> {
    schedule: &'a Schedule,
    timers: &'a [NewTimer],
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let mut unfinished = lock(&self.schedule.unfinished);
        if unfinished.len() + self.timers.len() > UNFINISHED {
            unfinished.clear();
        }
        unfinished.extend(self.timers.iter().map(|timer| timer.key.clone()));
    }
}

/// Names the key, and where nobody knows whether it was armed, the arming.
fn failed(error: Error, timer: &NewTimer) -> Error {
    let error = error.at_key(&timer.key);
    if error.is_unknown() { error.of_arming(timer.arming) } else { error }
}
