//! One timer: arming it, withdrawing it, moving it, looking it up.

use std::future::IntoFuture;
use std::time::SystemTime;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{ArmingId, CancelId};
use crate::lapse::RUNNING;
use crate::schedule::lane::Ask;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::{When, system_time};
use crate::topic::{Topic, TopicConfig};
use crate::trace::{Inject, Traceparent};
use crate::wire::{
    Arming, Cancelled, Durably, FailedAttempt, History, Look, NewTimer, Op, OpFlags, OpReply, Record,
    Rescheduled, State,
};

/// An arm, about to be made: set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is armed until the request is awaited"]
pub struct ArmRequest<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    timer: Result<NewTimer>,
    flags: OpFlags,
    durably: Option<Durably>,
}

/// A timer, as it stood a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer<T> {
    /// The arming.
    pub arming: ArmingId,
    /// What it is doing.
    pub phase: TimerPhase,
    /// The attempt that runs or is to come, from 1.
    pub attempt: u32,
    /// What the handler gets; of an attached topic's lapse the value that was kept.
    pub payload: T,
    /// The failed attempts, at most ten, oldest first.
    pub history: Vec<FailedAttempt>,
    /// Whether it has lost leases and waits in quarantine, to run in a small group or alone.
    pub quarantined: bool,
    /// When the arming kept behind it is due, if there is one.
    pub next: Option<SystemTime>,
}

/// What a timer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerPhase {
    /// It is due then, by the server's clock.
    Waiting(SystemTime),
    /// An attempt is running, under a lease until then.
    Running(SystemTime),
    /// It has no place in the index, and waits for the slow repair.
    Lost,
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
    /// ([`DeadReason::Inherited`](crate::dead_letters::DeadReason::Inherited)), instead of doing the same again.
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
        let (config, flags) = (&topic.config, flags_of(&topic.config));
        ArmRequest { schedule: self, config, timer, flags, durably: None }
    }

    /// Withdraws a timer and whatever is kept behind it.
    ///
    /// Once this has returned, nothing claims the timer any more, and whoever has claimed it can settle nothing.
    /// [`Cancelled`] says what the server knew, and what may still run.
    ///
    /// # Errors
    /// As for [`arm`](Schedule::arm).
    pub async fn cancel<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> Result<Cancelled> {
        let cancel = self.new_cancel(topic, &key)?;
        self.make(&topic.config, flags_of(&topic.config), cancel).await?.cancelled()
    }

    /// Moves a waiting timer to another deadline; its payload and attempt stay.
    ///
    /// # Errors
    /// As for [`arm`](Schedule::arm).
    pub async fn reschedule<T>(
        &self,
        topic: &Topic<T>,
        key: impl KeyArgs,
        when: impl Into<When>,
    ) -> Result<Rescheduled> {
        let moved = self.new_move(topic, &key, when.into())?;
        self.make(&topic.config, flags_of(&topic.config), moved).await?.rescheduled()
    }

    /// Looks a timer up; `None` if there is none.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, or the record is not of
    /// the topic's type or of a newer version.
    pub async fn look_up<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> Result<Option<Timer<T>>> {
        let key = self.key_of(&topic.config, &key)?;
        let lane = self.lane_of(&topic.config, &key).await?;
        let look = self.persist(|_| self.client.store.look(lane.at(), &key)).await;
        let Some(look) = look.map_err(|error| error.at_key(&key))? else { return Ok(None) };
        read(topic, look).map(Some).map_err(|error| error.at_key(&key))
    }
}

impl ArmRequest<'_> {
    /// Leaves an existing timer alone, and answers [`Arming::Exists`].
    pub fn only_if_absent(mut self) -> Self {
        self.flags.only_if_absent = true;
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
        let Self { schedule, config, timer, flags, durably } = self;
        let op = Op::Arm(timer?).made_by(running());
        match durably {
            None => schedule.make(config, flags, op).await?.armed(),
            Some(ask) => schedule.arm_durably(config, flags, &op, ask).await,
        }
    }
}

impl<'a> IntoFuture for ArmRequest<'a> {
    type Output = Result<Arming>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// What calls are made of, and how they are made.
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

    pub(super) fn new_cancel<T>(&self, topic: &Topic<T>, key: &impl KeyArgs) -> Result<Op> {
        Ok(Op::Cancel { key: self.key_of(&topic.config, key)?, id: CancelId::random() })
    }

    pub(super) fn new_move<T>(&self, topic: &Topic<T>, key: &impl KeyArgs, when: When) -> Result<Op> {
        let key = self.key_of(&topic.config, key)?;
        let when = when.resolve(topic.config.max_delay).map_err(|error| error.at_key(&key))?;
        Ok(Op::Reschedule { key, when })
    }

    /// Makes one call, alone or together with others.
    async fn make(&self, config: &TopicConfig, flags: OpFlags, op: Op) -> Result<OpReply> {
        let lane = self.lane_of(config, op.key()).await?;
        lane.call(self.client.patience, Ask { flags, ops: vec![op] }).await
    }

    /// Waiting for replicas holds up all that follows on a connection: so this shares nothing.
    async fn arm_durably(
        &self,
        config: &TopicConfig,
        flags: OpFlags,
        op: &Op,
        ask: Durably,
    ) -> Result<Arming> {
        let lane = self.lane_of(config, op.key()).await?;
        let call = async |repeat| {
            self.client.store.arm_durably(lane.at(), OpFlags { repeat, ..flags }, op, ask).await
        };
        self.persist(call).await.map_err(|error| op.failed(error))
    }
}

pub(super) fn flags_of(config: &TopicConfig) -> OpFlags {
    OpFlags { triggers: config.triggers, ..OpFlags::default() }
}

/// The timer whose attempt runs in this task.
pub(super) fn running() -> Option<ArmingId> {
    RUNNING.try_with(|arming| *arming).ok()
}

fn read<T>(topic: &Topic<T>, look: Look) -> Result<Timer<T>> {
    let unreadable =
        |_| Error::new(ErrorKind::WireVersion, "the record is broken, or was made by a newer keylapse");
    let record = Record::decode(look.record).map_err(unreadable)?;
    let state = look.state.map(State::decode).transpose().map_err(unreadable)?;
    let next = look.next.map(Record::decode_kept).transpose().map_err(unreadable)?;
    let state = state.unwrap_or_else(|| State::waiting(1));
    let phase = match look.score.map(system_time) {
        None => TimerPhase::Lost,
        Some(at) if state.claimed => TimerPhase::Running(at),
        Some(at) => TimerPhase::Waiting(at),
    };
    Ok(Timer {
        arming: record.arming,
        phase,
        attempt: state.attempt,
        payload: topic.decode(&record.payload)?,
        history: History::decode(&state.history).0,
        quarantined: look.quarantined,
        next: next.map(|next| system_time(next.deadline)),
    })
}
