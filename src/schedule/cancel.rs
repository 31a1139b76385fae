//! Withdrawing and moving timers.

use std::time::SystemTime;

use tracing::debug;

use crate::schedule::Schedule;
use crate::schedule::key::KeyArgs;
use crate::connection::retry::persist;
use crate::error::{Error, Result};
use crate::id::CancelId;
use crate::wire::types::{Cancel, CancelCode, RescheduleReply, Trigger};
use crate::time::{When, system_time};
use crate::topic::{TopicConfig, Topic};

/// What became of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt may be running"]
#[non_exhaustive]
pub enum Cancelled {
    /// It will not run.
    Cancelled,
    /// An attempt is running. It is told to stop, can settle nothing any more,
    /// and there will be no other.
    InFlight,
    /// There was no timer.
    NotArmed,
}

/// What became of a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt may be running"]
#[non_exhaustive]
pub enum Rescheduled {
    /// It is due then, by the server's clock.
    Rescheduled(SystemTime),
    /// An attempt is running; nothing was changed.
    InFlight,
    /// There is no timer.
    NotArmed,
}

impl Schedule {
    /// Withdraws a timer and whatever is kept behind it.
    ///
    /// Once this has returned, no new attempt starts.
    ///
    /// # Errors
    /// As for [`arm`](Schedule::arm).
    pub async fn cancel<T>(&self, topic: &Topic<T>, key: impl KeyArgs) -> Result<Cancelled> {
        let key = self.key_of(&topic.config, &key)?;
        let at = self.partition_of(&topic.config, &key).await?;
        let timers = [Cancel { key: key.clone(), id: CancelId::random() }];
        let call = |repeat| self.store.cancel(&at, &timers, repeat);
        let replies = persist(self.patience, call).await.map_err(|error| error.at_key(&key))?;
        let reply = replies.first().ok_or_else(|| Error::invalid("a cancel without an answer"))?;
        if let Some(deadline) = reply.deadline {
            self.drop_trigger(&topic.config, &key, deadline).await;
        }
        Ok(match reply.code {
            CancelCode::Cancelled => Cancelled::Cancelled,
            CancelCode::InFlight => Cancelled::InFlight,
            CancelCode::NotArmed => Cancelled::NotArmed,
        })
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
        let when = when.into().resolve().map_err(|error| error.at_key(&key))?;
        let at = self.partition_of(&topic.config, &key).await?;
        let call = |_| self.store.reschedule(&at, &key, when);
        let reply = persist(self.patience, call).await.map_err(|error| error.at_key(&key))?;
        Ok(match reply {
            RescheduleReply::NotArmed => Rescheduled::NotArmed,
            RescheduleReply::InFlight => Rescheduled::InFlight,
            RescheduleReply::Rescheduled { deadline, attempt, .. } => {
                if topic.config.triggers {
                    let trigger = Trigger { key: key.clone(), deadline, attempt, moved: true };
                    if let Err(error) = self.store.set_triggers(&[trigger]).await {
                        debug!(topic = %topic.config.name, %error, "trigger key not moved");
                    }
                }
                Rescheduled::Rescheduled(system_time(deadline))
            }
        })
    }

    /// A trigger that stays behind expires for nothing, and does no harm: until
    /// then the next arming takes it for somebody else's, and has none.
    async fn drop_trigger(&self, config: &TopicConfig, key: &[u8], deadline: u64) {
        if !config.triggers {
            return;
        }
        if let Err(error) = self.store.drop_trigger(key, deadline).await {
            debug!(topic = %config.name, %error, "trigger key not deleted");
        }
    }
}
