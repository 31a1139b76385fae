//! What producers ask of one partition: to arm, to withdraw, to move. Several such calls go in one request.

use std::time::SystemTime;

use bytes::Bytes;
use keylapse_connection::Value;

use super::markers::no_right;
use crate::error::{Error, Result};
use crate::id::{ArmingId, CancelId};
use crate::log::debug;
use crate::run::ScriptCall;
use crate::scripts::Script;
use crate::time::{WireWhen, system_time, unix_ms};
use crate::trace::Traceparent;
use crate::{ArmResult, MarkerKey, MarkerWrite, NewTimer, PartitionNames, Receipt, Record, Store, scripts};

/// What a producer asks of one timer.
#[derive(Clone, Debug)]
pub enum Op {
    /// To create or replace it.
    Arm(NewTimer),
    /// To withdraw it.
    Cancel {
        /// Its key.
        key: Bytes,
        /// The id of this cancel.
        id: CancelId,
    },
    /// To move it, if it waits.
    Reschedule {
        /// Its key.
        key: Bytes,
        /// When it is to be due.
        when: WireWhen,
    },
}

/// How ops are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFlags {
    /// Whether arms leave existing timers alone.
    pub only_if_absent: bool,
    /// Whether to see to trigger keys.
    pub marker_keys: bool,
    /// Whether this repeats an unanswered call with the same arming ids.
    pub repeat: bool,
}

/// A script call: ops of one kind, of which no two name a key; at most [`MAX_BATCH`](super::MAX_BATCH).
#[derive(Clone, Debug)]
pub struct OpCall<'a> {
    /// How they are executed.
    pub flags: OpFlags,
    /// What is asked.
    pub ops: Vec<&'a Op>,
}

impl Op {
    /// The timer's key.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Arm(timer) => &timer.key,
            Self::Cancel { key, .. } | Self::Reschedule { key, .. } => key,
        }
    }

    /// Bytes of key and payload.
    pub fn bytes(&self) -> usize {
        let payload = if let Self::Arm(timer) = self { timer.payload.len() } else { 0 };
        self.key().len() + payload
    }

    /// The same, made by the running attempt of this arming.
    pub fn made_by(self, by: Option<ArmingId>) -> Self {
        match self {
            Self::Arm(timer) => Self::Arm(NewTimer { by, ..timer }),
            other => other,
        }
    }

    /// An error of its call: names the key, and where nobody knows whether it was armed, the arming.
    pub fn failed(&self, error: Error) -> Error {
        let error = error.at_key(self.key());
        match self {
            Self::Arm(timer) if error.is_unknown() => error.of_arming(timer.arming),
            _ => error,
        }
    }

    /// Adds its arguments. `before` has the deadline of the arm before it, as many have the same: it is said once.
    fn write(&self, call: &mut ScriptCall<'_>, before: &mut Option<WireWhen>) {
        call.arg(&self.key()[..]);
        match self {
            Self::Arm(timer) => {
                match before.replace(timer.when) {
                    Some(before) if before == timer.when => call.arg(""),
                    _ => call.arg(timer.when.to_string()),
                };
                let head = match timer.trace {
                    None => Record::head(timer.arming),
                    Some(_) => Record::traced_head(timer.arming),
                };
                match timer.by {
                    None => call.arg(&head),
                    Some(by) => call.arg([&head, &by.as_bytes()[..]].concat()),
                };
                match timer.trace {
                    None => call.arg(&timer.payload[..]),
                    Some(Traceparent(trace)) => call.arg([&trace, &timer.payload[..]].concat()),
                }
            }
            Self::Cancel { id, .. } => call.arg(id.as_bytes()),
            Self::Reschedule { when, .. } => call.arg(when.to_string()),
        };
    }
}

impl OpCall<'_> {
    fn script(&self) -> &'static Script {
        match self.ops.first() {
            None | Some(Op::Arm(_)) => &scripts::ARM,
            Some(Op::Cancel { .. }) => &scripts::CANCEL,
            Some(Op::Reschedule { .. }) => &scripts::RESCHEDULE,
        }
    }
}

/// The result of a cancel.
///
/// ```
/// # use keylapse_wire as keylapse;
/// use keylapse::Cancelled;
///
/// /// Returns the next step for an order that was paid.
/// fn next_step(result: Cancelled) -> &'static str {
///     match result {
///         Cancelled::Cancelled => "ship", // no handler closes the order
///         Cancelled::Claimed | Cancelled::InFlight => "check", // a handler may be closing the order
///         _ => "refund", // the order is closed
///     }
/// }
/// assert_eq!(next_step(Cancelled::Cancelled), "ship");
/// ```
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
///
/// ```
/// # use keylapse_wire as keylapse;
/// use keylapse::Rescheduled;
///
/// /// Answers a customer who asks for more time to pay.
/// fn answer(result: Rescheduled) -> &'static str {
///     match result {
///         Rescheduled::Rescheduled(_) => "you have more time",
///         Rescheduled::InFlight => "the order is being closed",
///         _ => "the order is paid or closed",
///     }
/// }
/// assert_eq!(answer(Rescheduled::InFlight), "the order is being closed");
/// ```
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

/// The answer to one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpReply {
    /// Of an arm.
    Armed(ArmResult),
    /// Of a cancel.
    Cancelled(CancelReply),
    /// Of a reschedule.
    Rescheduled(Rescheduled),
}

impl OpReply {
    /// What an arm was answered.
    pub fn armed(self) -> Result<ArmResult> {
        if let Self::Armed(arming) = self { Ok(arming) } else { Err(another_kind()) }
    }

    /// What a cancel was answered.
    pub fn cancelled(self) -> Result<Cancelled> {
        if let Self::Cancelled(reply) = self { Ok(reply.result) } else { Err(another_kind()) }
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
    /// Makes these calls in one request, in their order; each has its own answer, with one for each of its ops.
    /// The keys of all have to differ: a call whose script is missing is made again after the others.
    pub async fn produce(
        &self,
        at: &PartitionNames,
        calls: &[OpCall<'_>],
    ) -> Vec<Result<Vec<Result<OpReply>>>> {
        let scripts: Vec<_> = calls.iter().map(|call| self.op_call(at, call)).collect();
        let answers = ScriptCall::run_all(&scripts).await;
        let read = |(call, answer): (&OpCall<'_>, Result<Value>)| self.op_replies(at, call, answer?);
        let mut replies: Vec<_> = calls.iter().zip(answers).map(read).collect();
        for (call, replies) in calls.iter().zip(&mut replies) {
            if let Ok(each) = replies {
                self.apply_marker_changes(call, each).await;
            }
        }
        replies
    }

    /// The second half of a call, where trigger keys lie elsewhere than the index.
    pub(super) async fn apply_marker_changes(&self, call: &OpCall<'_>, replies: &mut [Result<OpReply>]) {
        if !call.flags.marker_keys || !self.markers_need_own_calls() {
            return;
        }
        let (mut wanted, mut receipts, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut want = |key, deadline, attempt, moved| {
            wanted.push(MarkerWrite { key, deadline: unix_ms(deadline), attempt, moved });
        };
        for (op, reply) in call.ops.iter().zip(replies) {
            let (key, Ok(reply)) = (op.key().clone(), reply) else { continue };
            match reply {
                OpReply::Armed(ArmResult::Armed(receipt)) => {
                    want(key, receipt.deadline, 1, false);
                    receipts.push(receipt);
                }
                OpReply::Armed(ArmResult::Replaced(receipt)) => {
                    want(key, receipt.deadline, 1, true);
                    receipts.push(receipt);
                }
                OpReply::Cancelled(CancelReply { deadline: Some(deadline), .. }) => {
                    ended.push((key, *deadline));
                }
                OpReply::Rescheduled(Rescheduled::Rescheduled(to)) => want(key, *to, 0, true),
                _ => {}
            }
        }
        self.delete_markers(&ended).await;
        for (receipt, trigger) in receipts.into_iter().zip(self.set_markers(&wanted).await) {
            receipt.marker = trigger;
        }
    }

    pub(super) fn op_call<'a>(&'a self, at: &'a PartitionNames, call: &OpCall<'_>) -> ScriptCall<'a> {
        let OpFlags { only_if_absent, marker_keys: triggers, repeat } = call.flags;
        let modes = [
            if only_if_absent { b'a' } else { b'r' },
            flag(repeat),
            flag(self.scripts_set_markers(triggers)),
        ];
        let is_arm = call.script().name == scripts::ARM.name;
        let mut script = self.call(call.script(), at);
        script.arg(if is_arm { &modes[..] } else { &modes[2..] });
        let mut before = None;
        call.ops.iter().for_each(|op| op.write(&mut script, &mut before));
        script
    }

    /// Whether the scripts are to see to trigger keys that are wanted.
    pub(super) fn scripts_set_markers(&self, triggers: bool) -> bool {
        triggers && !self.markers_need_own_calls()
    }

    /// Reads what such a script has answered: for each timer, and behind that two texts.
    pub(super) fn op_replies(
        &self,
        at: &PartitionNames,
        call: &OpCall<'_>,
        answer: Value,
    ) -> Result<Vec<Result<OpReply>>> {
        let script = call.script().name;
        let unexpected = || crate::run::unexpected(script);
        let Value::BulkString(bytes) = answer else { return Err(unexpected()) };
        let count = call.ops.len();
        let (each, texts) = bytes.split_at_checked(count * RawOpReply::LENGTH).ok_or_else(unexpected)?;
        let each: Vec<_> = each.chunks_exact(RawOpReply::LENGTH).map(RawOpReply::read).collect();
        let texts = String::from_utf8_lossy(texts);
        let (untold, refused) = texts.split_once('\n').unwrap_or_default();
        let untold = (!untold.is_empty()).then(|| self.wake_up_error(at, untold));
        let not_moved = each.iter().filter(|one| one.trigger == REFUSED).count();
        if not_moved > 0 && script == scripts::RESCHEDULE.name {
            debug!(topic = %at.topic, refused = not_moved, error = %no_right(refused), "trigger keys not moved");
        }
        let replies = call.ops.iter().zip(each);
        replies.map(|(op, one)| one.reply(op, untold.as_ref(), refused).ok_or_else(unexpected)).collect()
    }
}

/// What a script has answered for one timer.
struct RawOpReply {
    code: u8,
    trigger: u8,
    deadline: u64,
}

/// The caller may not write the trigger key.
const REFUSED: u8 = 3;

impl RawOpReply {
    const LENGTH: usize = 10;

    fn read(bytes: &[u8]) -> Self {
        let deadline = bytes[2..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Self { code: bytes[0], trigger: bytes[1], deadline }
    }

    /// None for a code that its script does not have. `untold` is why listeners could not be told, `refused` why trigger
    /// keys could not be written.
    fn reply(&self, op: &Op, untold: Option<&Error>, refused: &str) -> Option<Result<OpReply>> {
        Some(Ok(match op {
            Op::Arm(timer) => OpReply::Armed(match self.code {
                0 => ArmResult::Armed(self.receipt(timer, untold, refused)),
                1 => ArmResult::Replaced(self.receipt(timer, untold, refused)),
                2 => ArmResult::AfterRunning(self.receipt(timer, untold, refused)),
                3 => ArmResult::Exists,
                4 => ArmResult::Superseded,
                5 => return Some(Err(too_far())),
                _ => return None,
            }),
            Op::Cancel { .. } => {
                let result = match self.code {
                    0 => Cancelled::NotArmed,
                    1 => Cancelled::Cancelled,
                    2 => Cancelled::InFlight,
                    3 => Cancelled::Claimed,
                    _ => return None,
                };
                let deadline = (self.deadline > 0).then_some(self.deadline);
                OpReply::Cancelled(CancelReply { result, deadline })
            }
            Op::Reschedule { .. } => OpReply::Rescheduled(match self.code {
                0 => Rescheduled::NotArmed,
                1 => Rescheduled::Rescheduled(system_time(self.deadline)),
                2 => Rescheduled::InFlight,
                3 => return Some(Err(too_far())),
                _ => return None,
            }),
        }))
    }

    fn receipt(&self, timer: &NewTimer, untold: Option<&Error>, refused: &str) -> Receipt {
        Receipt {
            id: timer.arming,
            deadline: system_time(self.deadline),
            marker: match self.trigger {
                0 => MarkerKey::None,
                1 => MarkerKey::Set,
                REFUSED => MarkerKey::Failed(no_right(refused)),
                _ => MarkerKey::Taken,
            },
            reached: None,
            wake_up_error: untold.cloned(),
        }
    }
}

fn flag(set: bool) -> u8 {
    if set { b'1' } else { b'0' }
}

fn too_far() -> Error {
    Error::invalid("the deadline lies beyond the year 2248 by the server's clock, and cannot be kept")
}
