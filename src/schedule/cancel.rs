//! Withdrawing and moving timers.

use tracing::debug;

use crate::error::{Error, Result};
use crate::id::CancelId;
use crate::schedule::{KeyArgs, Schedule};
use crate::time::{When, unix_ms};
use crate::topic::Topic;
use crate::wire::{Cancel, Cancelled, Rescheduled, Trigger};

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
        let call = |repeat| self.store().cancel(&at, &timers, repeat);
        let replies = self.persist(call).await.map_err(|error| error.at_key(&key))?;
        let reply = replies.first().ok_or_else(|| Error::invalid("a cancel without an answer"))?;
        if let (Some(deadline), true) = (reply.deadline, topic.config.triggers) {
            // One that stays behind expires for nothing, and does no harm: until
            // then the next arming takes it for somebody else's, and has none.
            if let Err(error) = self.store().drop_trigger(&key, deadline).await {
                debug!(topic = %topic.config.name, %error, "trigger key not deleted");
            }
        }
        Ok(reply.result)
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
        let call = |_| self.store().reschedule(&at, &key, when);
        let (result, attempt) = self.persist(call).await.map_err(|error| error.at_key(&key))?;
        if let (Rescheduled::Rescheduled(deadline), true) = (result, topic.config.triggers) {
            let trigger = Trigger { key, deadline: unix_ms(deadline), attempt, moved: true };
            if let Err(error) = self.store().set_triggers(&[trigger]).await {
                debug!(topic = %topic.config.name, %error, "trigger key not moved");
            }
        }
        Ok(result)
    }
}
