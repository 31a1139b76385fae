//! What an operator does to one timer, one letter, or a topic as a whole.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::id::{ArmingId, ReplayId};
use crate::time::When;
use crate::wire::{Arming, Cancelled, Replay, Replayed, Rescheduled};
use crate::{Entry, EntryState, KnownTopic};
use keylapse::{Destroyed, Key, Repartitioned};

impl KnownTopic {
    /// Arms a timer, as [`Schedule::arm`](keylapse::Schedule::arm) does. The payload is taken as it is.
    ///
    /// # Errors
    /// As there. Of kind [`Invalid`](keylapse::ErrorKind::Invalid) for an attached topic: its timers are keys that other
    /// programs write.
    pub async fn arm(
        &self,
        key: &[u8],
        when: impl Into<When>,
        payload: Bytes,
        only_if_absent: bool,
    ) -> Result<Arming> {
        if self.is_attached() {
            return Err(self.attached("arm"));
        }
        let request = self.schedule().arm(&self.topic, Key(key), when, &payload);
        if only_if_absent { request.only_if_absent().await } else { request.await }
    }

    /// Withdraws a timer, as [`Schedule::cancel`](keylapse::Schedule::cancel) does.
    ///
    /// # Errors
    /// As there.
    pub async fn cancel(&self, key: &[u8]) -> Result<Cancelled> {
        self.schedule().cancel(&self.topic, Key(key)).await
    }

    /// Moves a waiting timer to another deadline; its payload and attempt stay.
    ///
    /// # Errors
    /// As for [`Schedule::reschedule`](keylapse::Schedule::reschedule).
    pub async fn reschedule(&self, key: &[u8], when: impl Into<When>) -> Result<Rescheduled> {
        self.schedule().reschedule(&self.topic, Key(key), when).await
    }

    /// Makes a waiting timer due now.
    ///
    /// # Errors
    /// As for [`reschedule`](Self::reschedule).
    pub async fn run_now(&self, key: &[u8]) -> Result<Rescheduled> {
        self.reschedule(key, Duration::ZERO).await
    }

    /// Arms a dead letter's timer again, for now: as the same arming, or as a new one with an id of its own. See
    /// [`Schedule::replay`](keylapse::Schedule::replay).
    ///
    /// # Errors
    /// Of kind [`Invalid`](keylapse::ErrorKind::Invalid) if the entry is no dead letter. When the server cannot be reached
    /// or refuses.
    pub async fn replay(&self, letter: &Entry, as_new: bool) -> Result<Replayed> {
        self.check_letter(letter)?;
        let anew = as_new.then(ArmingId::random);
        let first = Replay { letter: letter.name.clone(), id: ReplayId::random(), anew, repeat: false };
        let at = &self.parts()[letter.partition as usize];
        let call = |repeat| {
            let call = Replay { repeat, ..first.clone() };
            async move { self.console.store().replay(at, &call).await }
        };
        self.console.persist(call).await.map_err(|error| error.at_key(&letter.key))
    }

    /// Forgets a dead letter; whether it was still there.
    ///
    /// # Errors
    /// As for [`replay`](Self::replay).
    pub async fn drop_letter(&self, letter: &Entry) -> Result<bool> {
        self.check_letter(letter)?;
        let at = &self.parts()[letter.partition as usize];
        let call = |_| self.console.store().drop_letter(at, &letter.name);
        self.console.persist(call).await.map_err(|error| error.at_key(&letter.key))
    }

    /// Pauses the topic, as [`Schedule::pause`](keylapse::Schedule::pause) does.
    ///
    /// # Errors
    /// As there.
    pub async fn pause(&self, reason: &str) -> Result<()> {
        self.schedule().pause(&self.topic, reason).await
    }

    /// Resumes the topic; what has become due runs at once.
    ///
    /// # Errors
    /// As for [`pause`](Self::pause).
    pub async fn resume(&self) -> Result<()> {
        self.schedule().resume(&self.topic).await
    }

    /// Gives the topic another number of partitions: see [`Schedule::repartition`](keylapse::Schedule::repartition). Attempts
    /// that run are waited for up to `wait`.
    ///
    /// # Errors
    /// As there.
    pub async fn repartition(&self, partitions: u32, wait: Duration) -> Result<Repartitioned> {
        self.schedule().repartition(&self.topic, partitions).wait(wait).await
    }

    /// Removes the topic with all that it holds: see [`Schedule::destroy`](keylapse::Schedule::destroy).
    ///
    /// # Errors
    /// As there.
    pub async fn destroy(&self, forced: bool) -> Result<Destroyed> {
        let request = self.schedule().destroy(&self.topic);
        if forced { request.forced().await } else { request.await }
    }

    /// Forgets an attached topic: see [`Schedule::detach`](keylapse::Schedule::detach).
    ///
    /// # Errors
    /// As there.
    pub async fn detach(&self) -> Result<Destroyed> {
        self.schedule().detach(&self.topic).await
    }

    pub(super) fn attached(&self, verb: &str) -> Error {
        Error::invalid(format!(
            "topic {} is attached: other programs write its keys, and nothing can {verb} them but those",
            self.name()
        ))
    }

    fn check_letter(&self, letter: &Entry) -> Result<()> {
        let ours = letter.state == EntryState::Dead && letter.topic == self.name();
        match ours && letter.partition < self.partitions() {
            true => Ok(()),
            false => Err(Error::invalid("this is no dead letter of the topic").at_key(&letter.key)),
        }
    }
}
