//! One timer: withdrawing it, moving it, looking it up.

use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{ArmingId, CancelId};
use crate::schedule::lane::{Ask, Jobs};
use crate::schedule::{KeyArgs, Schedule};
use crate::time::{When, system_time};
use crate::topic::Topic;
use crate::wire::{Cancel, Cancelled, FailedAttempt, History, Look, Move, Record, Rescheduled, State};

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
    /// Withdraws a timer and whatever is kept behind it.
    ///
    /// Once this has returned, nothing claims the timer any more, and whoever has claimed it can settle nothing.
    /// [`Cancelled`] says what the server knew, and what may still run.
    ///
    /// # Errors
    /// As for [`arm`](Schedule::arm).
    pub async fn cancel<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> Result<Cancelled> {
        let key = self.key_of(&topic.config, &key)?;
        let cancel = Cancel { key, id: CancelId::random() };
        let lane = self.lane_of(&topic.config, &cancel.key).await?;
        let ask = Ask { triggers: topic.config.triggers, jobs: Jobs::Cancel(vec![cancel]) };
        Ok(lane.call(self.client.patience, ask).await?.cancelled()?.result)
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
        let key = self.key_of(&topic.config, &key)?;
        let when = when.into().resolve(topic.config.max_delay).map_err(|error| error.at_key(&key))?;
        let lane = self.lane_of(&topic.config, &key).await?;
        let ask = Ask { triggers: topic.config.triggers, jobs: Jobs::Reschedule(vec![Move { key, when }]) };
        lane.call(self.client.patience, ask).await?.rescheduled()
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
