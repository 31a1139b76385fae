//! Calls for one timer: arm, cancel, reschedule, look up.

use std::future::IntoFuture;
use std::time::SystemTime;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{ArmingId, CancelId};
use crate::lapse::CURRENT_ARMING;
use crate::schedule::lane::OpRequest;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::{When, system_time};
use crate::topic::{Topic, TopicConfig};
use crate::trace::{Inject, Traceparent};
use crate::wire::{
    ArmResult, Cancelled, Durably, FailedAttempt, History, NewTimer, Op, OpFlags, OpReply, Record,
    Rescheduled, State, TimerSnapshot,
};

/// A request to arm a timer. Set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is armed until the request is awaited"]
pub struct ArmRequest<'a> {
    schedule: &'a Schedule,
    config: &'a TopicConfig,
    timer: Result<NewTimer>,
    flags: OpFlags,
    durably: Option<Durably>,
}

/// A timer at the time of the read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer<T> {
    /// The ID of the arming.
    pub arming: ArmingId,
    /// The timer's phase.
    pub phase: TimerPhase,
    /// The number of the current or next attempt, counted from 1.
    pub attempt: u32,
    /// The payload. For a lapse of an attached topic, it is the copy of the key's value.
    pub payload: T,
    /// The failed attempts, at most ten, oldest first.
    pub history: Vec<FailedAttempt>,
    /// True if the timer has lost leases and is in quarantine, where it runs in a small group or alone.
    pub quarantined: bool,
    /// The deadline of the arming that is queued behind this one, if any.
    pub next: Option<SystemTime>,
}

/// The phase of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerPhase {
    /// The timer waits, and is due at this time by the server's clock.
    Waiting(SystemTime),
    /// An attempt runs. Its lease ends at this time by the server's clock.
    Running(SystemTime),
    /// The timer is missing in the index. The slow repair adds it.
    Lost,
}

impl Schedule {
    /// Arms a timer. It replaces a waiting timer of the same key.
    ///
    /// `key` has the values of the pattern's captures in their order, or is a whole [`Key`](super::Key). `when` is a
    /// delay, or a time by the server's clock. A time in the past is due now.
    ///
    /// An arm takes one round trip. Calls to the same partition that are made during a round trip share the next one,
    /// in the order in which they were made. Without a call in flight, a call is sent immediately.
    ///
    /// If the future is dropped while it waits, for example by a timeout, the timer may still be armed a little
    /// later. A later arm or cancel of the key takes precedence. To limit the wait without this uncertainty, set the
    /// client's [`retry_for`](crate::Client::retry_for).
    ///
    /// A handler that arms its own key links the new timer to its attempt, if it arms in its own task. If the attempt
    /// brings down its listener for the last time, the new timer becomes a dead letter too
    /// ([`DeadReason::Inherited`](crate::dead_letters::DeadReason::Inherited)). Otherwise it could bring down the
    /// listener again.
    ///
    /// # Errors
    /// Returns an error before anything is sent if the key does not belong to the topic, or if key, payload or delay
    /// exceed their limits. [`max_delay`](Topic::max_delay) limits the delay.
    ///
    /// Returns an error of the server if it is unreachable, read-only or out of memory, or if the user lacks a
    /// permission. If no answer arrives, the kind is [`Unknown`](crate::ErrorKind::Unknown), and the error has the
    /// arming's ID.
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

    /// Cancels a timer, and the arming that is queued behind it.
    ///
    /// After this call no listener claims the timer, and a listener that has claimed it cannot settle it. The result
    /// reports the timer's previous state, and whether an attempt may still run.
    ///
    /// # Errors
    /// Returns the errors of [`arm`](Schedule::arm).
    pub async fn cancel<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> Result<Cancelled> {
        let cancel = self.new_cancel(topic, &key)?;
        self.call(&topic.config, flags_of(&topic.config), cancel).await?.cancelled()
    }

    /// Moves a waiting timer to another deadline. Its payload and its attempt number stay.
    ///
    /// # Errors
    /// Returns the errors of [`arm`](Schedule::arm).
    pub async fn reschedule<T>(
        &self,
        topic: &Topic<T>,
        key: impl KeyArgs,
        when: impl Into<When>,
    ) -> Result<Rescheduled> {
        let moved = self.new_move(topic, &key, when.into())?;
        self.call(&topic.config, flags_of(&topic.config), moved).await?.rescheduled()
    }

    /// Looks up a timer, or returns `None` if the key has none.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses the call. Returns an error if the payload does not
    /// match the topic's type, or if a newer version has written the record.
    pub async fn look_up<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> Result<Option<Timer<T>>> {
        let key = self.key_of(&topic.config, &key)?;
        let lane = self.lane_of(&topic.config, &key).await?;
        let snapshot = self.persist(|_| self.client.store.get_timer(lane.at(), &key)).await;
        let Some(snapshot) = snapshot.map_err(|error| error.at_key(&key))? else { return Ok(None) };
        timer_of(topic, snapshot).map(Some).map_err(|error| error.at_key(&key))
    }
}

impl ArmRequest<'_> {
    /// Arms only if the key has no timer. Otherwise the result is [`ArmResult::Exists`].
    pub fn only_if_absent(mut self) -> Self {
        self.flags.only_if_absent = true;
        self
    }

    /// Passes a trace context to the handler, as a W3C `traceparent` such as
    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. [`Schedule::trace`] sets it for all arms.
    pub fn traceparent(mut self, traceparent: &str) -> Self {
        self.timer = self.timer.and_then(|timer| match Traceparent::parse(traceparent) {
            None => Err(Error::invalid("invalid traceparent: expected the W3C format").at_key(&timer.key)),
            trace => Ok(NewTimer { trace, ..timer }),
        });
        self
    }

    /// Waits until the arming is as durable as `ask` requires, and reports how far it got.
    pub fn durably(mut self, ask: Durably) -> Self {
        self.durably = Some(ask);
        self
    }

    async fn send(self) -> Result<ArmResult> {
        let Self { schedule, config, timer, flags, durably } = self;
        let op = Op::Arm(timer?).made_by(current_arming());
        match durably {
            None => schedule.call(config, flags, op).await?.armed(),
            Some(ask) => schedule.arm_durably(config, flags, &op, ask).await,
        }
    }
}

impl<'a> IntoFuture for ArmRequest<'a> {
    type Output = Result<ArmResult>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// Creating and making calls.
impl Schedule {
    /// Creates an arm, or returns the error of a check that needs no server.
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

    /// Makes one call, alone or in a batch with others.
    async fn call(&self, config: &TopicConfig, flags: OpFlags, op: Op) -> Result<OpReply> {
        let lane = self.lane_of(config, op.key()).await?;
        lane.call(self.client.retry_for, OpRequest { flags, ops: vec![op] }).await
    }

    /// Arms a timer on a connection of its own: waiting for replicas delays all later calls on a connection.
    async fn arm_durably(
        &self,
        config: &TopicConfig,
        flags: OpFlags,
        op: &Op,
        ask: Durably,
    ) -> Result<ArmResult> {
        let lane = self.lane_of(config, op.key()).await?;
        let call = async |repeat| {
            self.client.store.arm_durably(lane.at(), OpFlags { repeat, ..flags }, op, ask).await
        };
        self.persist(call).await.map_err(|error| op.failed(error))
    }
}

/// Returns the flags for calls of a topic.
pub(super) fn flags_of(config: &TopicConfig) -> OpFlags {
    OpFlags { marker_keys: config.marker_keys, ..OpFlags::default() }
}

/// Returns the arming whose attempt runs in this task.
pub(super) fn current_arming() -> Option<ArmingId> {
    CURRENT_ARMING.try_with(|arming| *arming).ok()
}

/// Decodes a timer that was read from Redis.
fn timer_of<T>(topic: &Topic<T>, snapshot: TimerSnapshot) -> Result<Timer<T>> {
    let unreadable =
        |_| Error::new(ErrorKind::WireVersion, "the record is corrupt, or a newer keylapse has written it");
    let record = Record::decode(snapshot.record).map_err(unreadable)?;
    let state = snapshot.state.map(State::decode).transpose().map_err(unreadable)?;
    let next = snapshot.next.map(Record::decode_kept).transpose().map_err(unreadable)?;
    let state = state.unwrap_or_else(|| State::waiting(1));
    let phase = match snapshot.score.map(system_time) {
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
        quarantined: snapshot.quarantined,
        next: next.map(|next| system_time(next.deadline)),
    })
}
