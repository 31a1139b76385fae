//! Arming one timer.

use std::future::IntoFuture;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::schedule::Schedule;
use crate::schedule::key::KeyArgs;
use crate::time::{When, unix_ms};
use crate::topic::{Topic, TopicConfig};
use crate::wire::{Arm, Arming, Durably, NewTimer, Placed, Trigger, TriggerKey};

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
        let timers = [timer?];
        let [NewTimer { key, arming: id, .. }] = &timers;
        let at = schedule.partition_of(config, key).await?;
        let arm = |repeat| Arm { timers: &timers, only_if_absent, repeat };
        let store = schedule.store();
        let armings = match durably {
            None => schedule.persist(|repeat| store.arm(&at, arm(repeat))).await,
            Some(ask) => schedule.persist(|repeat| store.arm_durably(&at, arm(repeat), ask)).await,
        };
        let armings = armings.map_err(|error| Schedule::failed(error, key, *id))?;
        let mut arming =
            armings.into_iter().next().ok_or_else(|| Error::invalid("an arm without an answer"))?;
        schedule.set_triggers(config, &mut [(key, &mut arming)]).await;
        Ok(arming)
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
    /// Names the key, and where nobody knows whether it was armed, the arming.
    pub(super) fn failed(error: Error, key: &[u8], arming: ArmingId) -> Error {
        let error = error.at_key(key);
        if error.is_unknown() { error.of_arming(arming) } else { error }
    }

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

    /// Sets the trigger keys of what was armed, after the index: a missing
    /// trigger needs no repair, and a failure is no failure of the arm.
    pub(super) async fn set_triggers(&self, config: &TopicConfig, armed: &mut [(&Bytes, &mut Arming)]) {
        if !config.triggers {
            return;
        }
        let mut triggers = Vec::with_capacity(armed.len());
        let mut receipts = Vec::with_capacity(armed.len());
        for (key, arming) in armed {
            if matches!(arming, Arming::AfterRunning(_)) {
                continue;
            }
            let moved = matches!(arming, Arming::Replaced(_));
            if let Some(receipt) = arming.receipt_mut() {
                let deadline = unix_ms(receipt.deadline);
                triggers.push(Trigger { key: (*key).clone(), deadline, attempt: 1, moved });
                receipts.push(receipt);
            }
        }
        if triggers.is_empty() {
            return;
        }
        match self.store().set_triggers(&triggers).await {
            Ok(replies) => receipts.into_iter().zip(replies).for_each(|(receipt, reply)| {
                receipt.trigger = match reply {
                    Placed::Set => TriggerKey::Set,
                    Placed::Past => TriggerKey::None,
                    Placed::Taken => TriggerKey::Taken,
                }
            }),
            Err(error) => {
                receipts.into_iter().for_each(|receipt| receipt.trigger = TriggerKey::Failed(error.clone()));
            }
        }
    }
}
