//! Arming a timer.

use std::future::IntoFuture;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::lapse::RUNNING;
use crate::schedule::lane::{Ask, Jobs};
use crate::schedule::{KeyArgs, Schedule};
use crate::time::When;
use crate::topic::{Topic, TopicConfig};
use crate::trace::{Inject, Traceparent};
use crate::wire::{ArmHow, Arming, Durably, NewTimer, PartitionNames};

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
    /// It takes one round trip. Calls that are made while another is on its way to the same partition go together
    /// with the next, in the order in which they were made; one that finds nothing on its way is sent at once.
    ///
    /// Dropped while it waits, as by a timeout around it, it may arm the timer, and may do so a little later.
    /// Another arm or a cancel of the key that is made afterwards has the last word. A client's
    /// [`patience`](crate::Client::patience) ends the waiting without this doubt.
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
        let timer = NewTimer { by: RUNNING.try_with(|arming| *arming).ok(), ..timer? };
        let lane = schedule.lane_of(config, &timer.key).await?;
        if let Some(ask) = durably {
            return schedule.arm_durably(config, lane.at(), &timer, only_if_absent, ask).await;
        }
        let jobs = Jobs::Arm { only_if_absent, timers: vec![timer] };
        lane.call(schedule.client.patience, Ask { triggers: config.triggers, jobs }).await?.armed()
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
        Ok(NewTimer { key, when, arming: ArmingId::random(), payload, trace, by: None })
    }

    /// Waiting for replicas holds up all that follows on a connection: so this shares nothing.
    async fn arm_durably(
        &self,
        config: &TopicConfig,
        at: &PartitionNames,
        timer: &NewTimer,
        only_if_absent: bool,
        ask: Durably,
    ) -> Result<Arming> {
        let call = async |repeat| {
            let how = ArmHow { only_if_absent, triggers: config.triggers, repeat };
            self.client.store.arm_durably(at, how, timer, ask).await
        };
        self.persist(call).await.map_err(|error| timer.failed(error))
    }
}
