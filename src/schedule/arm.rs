//! Arming one timer.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Schedule;
use super::key::KeyArgs;
use crate::calls::persist;
use crate::error::{Error, Result};
use crate::id::ArmingId;
use crate::store::{Arm, ArmCode, ArmReply, Durability, NewTimer, Reached, Trigger, TriggerReply};
use crate::time::{When, ms_ceil, system_time};
use crate::topic::{Shape, Topic};

/// What became of an arm.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "an arm may have changed nothing"]
pub enum Arming {
    /// There was no timer of this key; now there is.
    Armed(Receipt),
    /// It took the place of a waiting timer.
    Replaced(Receipt),
    /// An attempt is running: this is kept, and takes effect when that timer
    /// ends, or in place of its retry.
    AfterRunning(Receipt),
    /// There is a timer, and it was to be left alone.
    Exists,
    /// The arm was made, but its answer was lost; by the time it was asked for
    /// again, somebody had cancelled or replaced it.
    Superseded,
}

impl Arming {
    /// The receipt, where this call armed something that stands.
    pub fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Armed(receipt) | Self::Replaced(receipt) | Self::AfterRunning(receipt) => Some(receipt),
            Self::Exists | Self::Superseded => None,
        }
    }

    /// Whether this call armed something that stands.
    pub fn is_armed(&self) -> bool {
        self.receipt().is_some()
    }

    pub(super) fn new(reply: ArmReply, id: ArmingId) -> Self {
        let receipt =
            Receipt { id, deadline: system_time(reply.deadline), trigger: TriggerKey::None, reached: None };
        match reply.code {
            ArmCode::Armed => Self::Armed(receipt),
            ArmCode::Replaced => Self::Replaced(receipt),
            ArmCode::AfterRunning => Self::AfterRunning(receipt),
            ArmCode::Exists => Self::Exists,
            ArmCode::Superseded => Self::Superseded,
        }
    }

    fn receipt_mut(&mut self) -> Option<&mut Receipt> {
        match self {
            Self::Armed(receipt) | Self::Replaced(receipt) | Self::AfterRunning(receipt) => Some(receipt),
            Self::Exists | Self::Superseded => None,
        }
    }
}

/// Proof of an arming.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// The arming's id.
    pub id: ArmingId,
    /// When it is due, by the server's clock.
    pub deadline: SystemTime,
    /// What became of the trigger key.
    pub trigger: TriggerKey,
    /// How far the arming had travelled when the call returned, if that was
    /// asked for.
    pub reached: Option<Reached>,
}

/// What became of a trigger key. Whatever it was, the timer fires: the index
/// is the truth.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TriggerKey {
    /// It stands, and expires at the deadline.
    Set,
    /// None is kept: the topic has none, the deadline has passed, or the arming
    /// waits for a running attempt.
    None,
    /// The name holds a value that is not known to be ours, and was left alone:
    /// somebody else's, or the key of a cancelled timer whose deletion failed.
    Foreign,
    /// It could not be written.
    Failed(Error),
}

/// How far an arming is to travel before the call returns.
///
/// Asynchronous replication can lose acknowledged writes; this narrows the
/// window, and no more than that.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Durably(pub(crate) Durability);

impl Durably {
    /// On this many replicas (WAIT).
    pub fn replicas(count: u32) -> Self {
        Self(Durability { replicas: count, local_fsync: false, within_ms: 1000 })
    }

    /// In the server's append-only file, flushed (WAITAOF; Redis 7.2, Valkey
    /// 7.2 or newer), and so on this many replicas.
    pub fn fsync(replicas: u32) -> Self {
        Self(Durability { replicas, local_fsync: true, within_ms: 1000 })
    }

    /// How long to wait for that; the call then returns what was reached.
    /// Default: 1 s, at most 4 s.
    pub fn within(mut self, limit: Duration) -> Self {
        self.0.within_ms = ms_ceil(limit).clamp(1, 4000);
        self
    }
}

/// An arm, about to be made: set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is armed until the request is awaited"]
pub struct ArmRequest<'a> {
    schedule: &'a Schedule,
    shape: &'a Shape,
    timer: Result<NewTimer>,
    only_if_absent: bool,
    durably: Option<Durability>,
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
        ArmRequest { schedule: self, shape: &topic.shape, timer, only_if_absent: false, durably: None }
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
        self.durably = Some(ask.0);
        self
    }

    async fn send(self) -> Result<Arming> {
        let timer = self.timer?;
        let key = timer.key.clone();
        let at = self.schedule.partition_of(self.shape, &key).await?;
        let timers = [timer];
        let id = timers[0].arming;
        let arm = |repeat| Arm { timers: &timers, only_if_absent: self.only_if_absent, repeat };
        let store = &self.schedule.store;
        let (reply, reached) = match self.durably {
            None => (persist(self.schedule.patience, |repeat| store.arm(&at, arm(repeat))).await, None),
            Some(ask) => {
                let armed =
                    persist(self.schedule.patience, |repeat| store.arm_durably(&at, arm(repeat), ask)).await;
                armed.map_or_else(|error| (Err(error), None), |(reply, reached)| (Ok(reply), Some(reached)))
            }
        };
        let replies = reply.map_err(|error| Schedule::failed(error, &key, id))?.value;
        let reply = replies.first().ok_or_else(|| Error::invalid("an arm without an answer"))?;
        let mut arming = Arming::new(*reply, id);
        if let Some(receipt) = arming.receipt_mut() {
            receipt.reached = reached;
        }
        self.schedule.set_triggers(self.shape, &mut [(&key, &mut arming)]).await;
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
        let key = self.key_of(&topic.shape, key)?;
        let payload = (topic.codec.encode)(payload).map_err(|error| error.at_key(&key))?;
        topic.shape.check_payload(&key, &payload)?;
        let when = when.resolve().map_err(|error| error.at_key(&key))?;
        Ok(NewTimer { key, when, arming: ArmingId::random(), payload })
    }

    /// Sets the trigger keys of what was armed, after the index: a missing
    /// trigger needs no repair, and a failure is no failure of the arm.
    pub(super) async fn set_triggers(&self, shape: &Shape, armed: &mut [(&Bytes, &mut Arming)]) {
        if !shape.triggers {
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
                let since = receipt.deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let deadline = ms_ceil(since);
                triggers.push(Trigger { key: (*key).clone(), deadline, attempt: 1, moved });
                receipts.push(receipt);
            }
        }
        if triggers.is_empty() {
            return;
        }
        match self.store.set_triggers(&triggers).await {
            Ok(replies) => receipts.into_iter().zip(replies).for_each(|(receipt, reply)| {
                receipt.trigger = match reply {
                    TriggerReply::Set => TriggerKey::Set,
                    TriggerReply::Past => TriggerKey::None,
                    TriggerReply::Foreign => TriggerKey::Foreign,
                }
            }),
            Err(error) => {
                receipts.into_iter().for_each(|receipt| receipt.trigger = TriggerKey::Failed(error.clone()));
            }
        }
    }
}
