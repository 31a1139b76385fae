//! What producers ask of one partition: to arm, to withdraw, to move. Several such calls go in one request.

use std::time::SystemTime;

use bytes::Bytes;
use keylapse_connection::Value;

use crate::calls::triggers::no_right;
use crate::error::{Error, Result};
use crate::id::CancelId;
use crate::log::debug;
use crate::run::Call;
use crate::time::{WireWhen, system_time, unix_ms};
use crate::{Arming, NewTimer, PartitionNames, Receipt, Store, Trigger, TriggerKey, scripts};

/// A script call of a producer's; no key twice, at most [`MAX_BATCH`](super::MAX_BATCH) timers.
#[derive(Debug)]
pub enum Change<'a> {
    /// Create or replace timers.
    Arm(ArmHow, Vec<&'a NewTimer>),
    /// Withdraw timers.
    Cancel(CancelHow, Vec<&'a Cancel>),
    /// Move waiting timers.
    Reschedule(RescheduleHow, Vec<&'a Move>),
}

/// How to arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmHow {
    /// Whether to leave existing timers alone.
    pub only_if_absent: bool,
    /// Whether to set trigger keys.
    pub triggers: bool,
    /// Whether this repeats an unanswered call with the same arming ids.
    pub repeat: bool,
}

/// How to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelHow {
    /// Whether to delete trigger keys.
    pub triggers: bool,
}

/// How to reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RescheduleHow {
    /// Whether to move trigger keys.
    pub triggers: bool,
}

/// A timer to withdraw.
#[derive(Clone, Debug)]
pub struct Cancel {
    /// Its key.
    pub key: Bytes,
    /// The id of this cancel.
    pub id: CancelId,
}

/// A timer to move.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its key.
    pub key: Bytes,
    /// When it is to be due.
    pub when: WireWhen,
}

/// The result of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt may be running"]
#[non_exhaustive]
pub enum Cancelled {
    /// It will not run.
    Cancelled,
    /// A listener had claimed it ahead of its deadline, which is still to come: its attempt has not started. That
    /// listener is told, and does not start it once it has heard so.
    ///
    /// One that hears nothing, as its line is down or the caller may not publish, may start it up to the
    /// lookahead and 100 ms after its claim, and settles nothing then. Later it asks the
    /// server first.
    Claimed,
    /// A listener had claimed it, and its deadline is past: an attempt is running, or about to. It is told to stop,
    /// can settle nothing any more, and there will be no other. If it has not started when its listener hears of
    /// this, it does not; the same holds for one that hears nothing as above. A repeat of an unanswered call
    /// cannot tell the two cases apart, and says this.
    InFlight,
    /// There was no timer.
    NotArmed,
}

/// The result of a reschedule.
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

/// The answer for one timer of a cancel call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelReply {
    /// Which case.
    pub result: Cancelled,
    /// When what ended was due, in ms, where this very call ended something.
    pub deadline: Option<u64>,
}

/// The answer for one timer of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Of an arm.
    Armed(Arming),
    /// Of a cancel.
    Cancelled(CancelReply),
    /// Of a reschedule.
    Rescheduled(Rescheduled),
}

impl Changed {
    /// What an arm was answered.
    pub fn armed(self) -> Result<Arming> {
        if let Self::Armed(arming) = self { Ok(arming) } else { Err(another_kind()) }
    }

    /// What a cancel was answered.
    pub fn cancelled(self) -> Result<CancelReply> {
        if let Self::Cancelled(reply) = self { Ok(reply) } else { Err(another_kind()) }
    }

    /// What a reschedule was answered.
    pub fn rescheduled(self) -> Result<Rescheduled> {
        if let Self::Rescheduled(result) = self { Ok(result) } else { Err(another_kind()) }
    }
}

fn another_kind() -> Error {
    Error::invalid("an answer of another kind")
}

impl Store {
    /// Makes these calls in one request, in their order; each has its own answer, with one for each of its timers.
    /// The keys of all have to differ: a call whose script is missing is made again after the others.
    pub async fn change(
        &self,
        at: &PartitionNames,
        changes: &[Change<'_>],
    ) -> Vec<Result<Vec<Result<Changed>>>> {
        let calls: Vec<_> = changes.iter().map(|change| self.change_call(at, change)).collect();
        let answers = Call::run_all(&calls).await;
        let read = |(change, answer): (&Change<'_>, Result<Value>)| self.changed(at, change, answer?);
        let mut answers: Vec<_> = changes.iter().zip(answers).map(read).collect();
        if self.has_triggers_apart() {
            for (change, answer) in changes.iter().zip(&mut answers) {
                if let Ok(each) = answer {
                    self.see_to_triggers(change, each).await;
                }
            }
        }
        answers
    }

    /// The second half of a change, where trigger keys lie elsewhere than the index.
    pub(super) async fn see_to_triggers(&self, change: &Change<'_>, each: &mut [Result<Changed>]) {
        match change {
            Change::Arm(ArmHow { triggers: true, .. }, timers) => {
                let (mut wanted, mut receipts) = (Vec::new(), Vec::new());
                for (timer, one) in timers.iter().zip(each) {
                    let (receipt, moved) = match one {
                        Ok(Changed::Armed(Arming::Armed(receipt))) => (receipt, false),
                        Ok(Changed::Armed(Arming::Replaced(receipt))) => (receipt, true),
                        _ => continue,
                    };
                    let (key, deadline) = (timer.key.clone(), unix_ms(receipt.deadline));
                    wanted.push(Trigger { key, deadline, attempt: 1, moved });
                    receipts.push(receipt);
                }
                for (receipt, trigger) in receipts.into_iter().zip(self.set_triggers(&wanted).await) {
                    receipt.trigger = trigger;
                }
            }
            Change::Cancel(CancelHow { triggers: true }, timers) => {
                let ended = timers.iter().zip(each).filter_map(|(timer, one)| match one {
                    Ok(Changed::Cancelled(CancelReply { deadline, .. })) => {
                        Some((timer.key.clone(), (*deadline)?))
                    }
                    _ => None,
                });
                self.drop_triggers(&ended.collect::<Vec<_>>()).await;
            }
            Change::Reschedule(RescheduleHow { triggers: true }, timers) => {
                let moved = timers.iter().zip(each).filter_map(|(timer, one)| match one {
                    Ok(Changed::Rescheduled(Rescheduled::Rescheduled(at))) => Some(Trigger {
                        key: timer.key.clone(),
                        deadline: unix_ms(*at),
                        attempt: 0,
                        moved: true,
                    }),
                    _ => None,
                });
                let _ = self.set_triggers(&moved.collect::<Vec<_>>()).await;
            }
            _ => {}
        }
    }

    pub(super) fn change_call<'a>(&'a self, at: &'a PartitionNames, change: &Change<'_>) -> Call<'a> {
        match change {
            Change::Arm(how, timers) => self.arm_call(at, *how, timers),
            Change::Cancel(CancelHow { triggers }, timers) => {
                let mut call = self.call(&scripts::CANCEL, at);
                call.arg(&[flag(self.sees_to(*triggers))][..]);
                for timer in timers {
                    call.arg(&timer.key[..]).arg(timer.id.as_bytes());
                }
                call
            }
            Change::Reschedule(RescheduleHow { triggers }, timers) => {
                let mut call = self.call(&scripts::RESCHEDULE, at);
                call.arg(&[flag(self.sees_to(*triggers))][..]);
                for timer in timers {
                    call.arg(&timer.key[..]).arg(timer.when.to_string());
                }
                call
            }
        }
    }

    /// Whether the scripts are to see to trigger keys that are wanted.
    pub(super) fn sees_to(&self, triggers: bool) -> bool {
        triggers && !self.has_triggers_apart()
    }

    pub(super) fn changed(
        &self,
        at: &PartitionNames,
        change: &Change<'_>,
        answer: Value,
    ) -> Result<Vec<Result<Changed>>> {
        match change {
            Change::Arm(_, timers) => {
                let answers = self.answers(at, scripts::ARM.name, answer, timers.len())?;
                let untold = answers.untold.as_ref();
                timers
                    .iter()
                    .zip(&answers.each)
                    .map(|(timer, one)| one.armed(timer, untold, &answers))
                    .collect()
            }
            Change::Cancel(_, timers) => {
                let answers = self.answers(at, scripts::CANCEL.name, answer, timers.len())?;
                answers.each.iter().map(|one| Ok(Ok(Changed::Cancelled(one.cancelled()?)))).collect()
            }
            Change::Reschedule(_, timers) => {
                let answers = self.answers(at, scripts::RESCHEDULE.name, answer, timers.len())?;
                let refused = answers.each.iter().filter(|one| one.trigger == REFUSED).count();
                if refused > 0 {
                    debug!(topic = %at.topic, refused, error = %answers.refused(), "trigger keys not moved");
                }
                answers.each.iter().map(One::rescheduled).collect()
            }
        }
    }

    /// Reads the texts that these scripts answer.
    fn answers(
        &self,
        at: &PartitionNames,
        script: &'static str,
        answer: Value,
        count: usize,
    ) -> Result<Answers> {
        let Value::BulkString(bytes) = answer else { return Err(unexpected(script)) };
        let (each, texts) = bytes.split_at_checked(count * One::LENGTH).ok_or_else(|| unexpected(script))?;
        let each = each.chunks_exact(One::LENGTH).map(|bytes| One::read(script, bytes)).collect();
        let texts = String::from_utf8_lossy(texts);
        let (untold, refused) = texts.split_once('\n').unwrap_or_default();
        let untold = (!untold.is_empty()).then(|| self.untold(at, untold));
        Ok(Answers { each, untold, refused: refused.to_owned() })
    }
}

/// For tests of the scripts.
impl Store {
    /// Creates or replaces timers.
    pub async fn arm(
        &self,
        at: &PartitionNames,
        how: ArmHow,
        timers: &[NewTimer],
    ) -> Result<Vec<Result<Arming>>> {
        self.change_only(at, Change::Arm(how, timers.iter().collect()), Changed::armed).await
    }

    /// Withdraws timers, and leaves trigger keys alone.
    pub async fn cancel(&self, at: &PartitionNames, timers: &[Cancel]) -> Result<Vec<CancelReply>> {
        let how = CancelHow { triggers: false };
        self.change_only(at, Change::Cancel(how, timers.iter().collect()), Changed::cancelled)
            .await?
            .into_iter()
            .collect()
    }

    /// Moves a waiting timer to another deadline, and leaves its trigger key alone.
    pub async fn reschedule(&self, at: &PartitionNames, key: &[u8], when: WireWhen) -> Result<Rescheduled> {
        let moved = Move { key: Bytes::copy_from_slice(key), when };
        let change = Change::Reschedule(RescheduleHow { triggers: false }, vec![&moved]);
        let mut answers = self.change_only(at, change, Changed::rescheduled).await?;
        answers.pop().unwrap_or_else(|| Err(unexpected(scripts::RESCHEDULE.name)))
    }

    async fn change_only<T>(
        &self,
        at: &PartitionNames,
        change: Change<'_>,
        read: fn(Changed) -> Result<T>,
    ) -> Result<Vec<Result<T>>> {
        let mut answers = self.change(at, &[change]).await;
        let each = answers.pop().unwrap_or_else(|| Ok(Vec::new()))?.into_iter();
        Ok(each.map(|one| one.and_then(read)).collect())
    }
}

/// What a script has answered.
struct Answers {
    each: Vec<One>,
    /// Why listeners could not be told.
    untold: Option<Error>,
    /// Why trigger keys were refused.
    refused: String,
}

impl Answers {
    fn refused(&self) -> Error {
        no_right(&self.refused)
    }
}

/// What it has answered for one timer.
struct One {
    script: &'static str,
    code: u8,
    trigger: u8,
    deadline: u64,
}

/// The caller may not write the trigger key.
const REFUSED: u8 = 3;

impl One {
    const LENGTH: usize = 10;

    fn read(script: &'static str, bytes: &[u8]) -> Self {
        let deadline = bytes[2..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Self { script, code: bytes[0], trigger: bytes[1], deadline }
    }

    fn armed(&self, timer: &NewTimer, untold: Option<&Error>, answers: &Answers) -> Result<Result<Changed>> {
        let receipt = || Receipt {
            id: timer.arming,
            deadline: system_time(self.deadline),
            trigger: match self.trigger {
                0 => TriggerKey::None,
                1 => TriggerKey::Set,
                REFUSED => TriggerKey::Failed(answers.refused()),
                _ => TriggerKey::Taken,
            },
            reached: None,
            untold: untold.cloned(),
        };
        Ok(Ok(Changed::Armed(match self.code {
            0 => Arming::Armed(receipt()),
            1 => Arming::Replaced(receipt()),
            2 => Arming::AfterRunning(receipt()),
            3 => Arming::Exists,
            4 => Arming::Superseded,
            5 => return Ok(Err(too_far())),
            _ => return Err(unexpected(self.script)),
        })))
    }

    fn cancelled(&self) -> Result<CancelReply> {
        let result = match self.code {
            0 => Cancelled::NotArmed,
            1 => Cancelled::Cancelled,
            2 => Cancelled::InFlight,
            3 => Cancelled::Claimed,
            _ => return Err(unexpected(self.script)),
        };
        Ok(CancelReply { result, deadline: (self.deadline > 0).then_some(self.deadline) })
    }

    fn rescheduled(&self) -> Result<Result<Changed>> {
        Ok(Ok(Changed::Rescheduled(match self.code {
            0 => Rescheduled::NotArmed,
            1 => Rescheduled::Rescheduled(system_time(self.deadline)),
            2 => Rescheduled::InFlight,
            3 => return Ok(Err(too_far())),
            _ => return Err(unexpected(self.script)),
        })))
    }
}

pub(super) fn flag(set: bool) -> u8 {
    if set { b'1' } else { b'0' }
}

fn too_far() -> Error {
    Error::invalid("the deadline lies beyond the year 2248 by the server's clock, and cannot be kept")
}

fn unexpected(script: &'static str) -> Error {
    crate::reply::unexpected(script)
}
