//! Calls of producers: arm, cancel and reschedule timers of a partition. Several calls share a request.

use std::time::SystemTime;

use bytes::Bytes;
use keylapse_connection::Value;

use super::markers::marker_refusal;
use crate::error::{Error, Result};
use crate::id::{ArmingId, CancelId};
use crate::log::debug;
use crate::run::ScriptCall;
use crate::scripts::Script;
use crate::time::{WireWhen, system_time, unix_ms};
use crate::trace::Traceparent;
use crate::{ArmResult, MarkerKey, MarkerWrite, NewTimer, PartitionNames, Receipt, Record, Store, scripts};

/// An operation of a producer on one timer.
#[derive(Clone, Debug)]
pub enum Op {
    /// Create or replace the timer.
    Arm(NewTimer),
    /// Cancel the timer.
    Cancel {
        /// The key.
        key: Bytes,
        /// The ID of this cancel.
        id: CancelId,
    },
    /// Move the timer to another deadline, if it waits.
    Reschedule {
        /// The key.
        key: Bytes,
        /// The new deadline.
        when: WireWhen,
    },
}

/// How operations are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFlags {
    /// True if arms leave existing timers alone.
    pub only_if_absent: bool,
    /// True if the timers have marker keys, which are set, moved and deleted with them.
    pub marker_keys: bool,
    /// True if this repeats an unanswered call with the same arming IDs.
    pub repeat: bool,
}

/// A script call with up to [`MAX_BATCH`](super::MAX_BATCH) operations of one kind, each on a different key.
#[derive(Clone, Debug)]
pub struct OpCall<'a> {
    /// How the operations are executed.
    pub flags: OpFlags,
    /// The operations.
    pub ops: Vec<&'a Op>,
}

impl Op {
    /// Returns the key of the timer.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Arm(timer) => &timer.key,
            Self::Cancel { key, .. } | Self::Reschedule { key, .. } => key,
        }
    }

    /// Returns the length of key and payload, in bytes.
    pub fn bytes(&self) -> usize {
        let payload = if let Self::Arm(timer) = self { timer.payload.len() } else { 0 };
        self.key().len() + payload
    }

    /// Marks an arm as made by the running attempt of this arming.
    pub fn made_by(self, by: Option<ArmingId>) -> Self {
        match self {
            Self::Arm(timer) => Self::Arm(NewTimer { by, ..timer }),
            other => other,
        }
    }

    /// Adds the key to an error of the call. If the outcome of an arm is unknown, adds the ID of the arming, too.
    pub fn failed(&self, error: Error) -> Error {
        let error = error.at_key(self.key());
        match self {
            Self::Arm(timer) if error.is_unknown() => error.of_arming(timer.arming),
            _ => error,
        }
    }

    /// Adds the arguments to a call. `before` is the deadline of the previous arm. An equal one is sent as an empty
    /// argument, because many timers of a call share a deadline.
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
    /// The timer will not run.
    Cancelled,
    /// A listener had claimed the timer ahead of its deadline, which is still to come. The attempt has not started. The
    /// listener receives a notice, and does not start it.
    ///
    /// A listener receives no notice if its connection is down, or if the caller may not publish. It may then start the
    /// attempt until the lookahead and 100 ms have passed since its claim, but cannot settle it. After that time it asks the
    /// server before it starts one.
    Claimed,
    /// A listener had claimed the timer, and its deadline has passed. The attempt runs, or is about to start.
    ///
    /// The handler receives a notice to stop. The attempt cannot settle any more, and no other follows. If it has not
    /// started when the notice arrives, it never starts. Without a notice the limits of [`Claimed`](Self::Claimed) apply.
    /// A repeat of an unanswered call returns this variant for both cases.
    InFlight,
    /// The key had no timer.
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
    /// The timer has this deadline, by the server's clock.
    Rescheduled(SystemTime),
    /// An attempt is running, and nothing was changed.
    InFlight,
    /// The key has no timer.
    NotArmed,
}

/// The reply for one timer of a cancel call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelReply {
    /// The result.
    pub result: Cancelled,
    /// The deadline of the timer that this execution has ended, in ms, if it has ended one.
    pub deadline: Option<u64>,
}

/// The reply to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpReply {
    /// The result of an arm.
    Armed(ArmResult),
    /// The reply to a cancel.
    Cancelled(CancelReply),
    /// The result of a reschedule.
    Rescheduled(Rescheduled),
}

impl OpReply {
    /// Returns the result of an arm. Fails for the reply to another operation.
    pub fn armed(self) -> Result<ArmResult> {
        if let Self::Armed(arming) = self { Ok(arming) } else { Err(another_kind()) }
    }

    /// Returns the result of a cancel. Fails for the reply to another operation.
    pub fn cancelled(self) -> Result<Cancelled> {
        if let Self::Cancelled(reply) = self { Ok(reply.result) } else { Err(another_kind()) }
    }

    /// Returns the result of a reschedule. Fails for the reply to another operation.
    pub fn rescheduled(self) -> Result<Rescheduled> {
        if let Self::Rescheduled(result) = self { Ok(result) } else { Err(another_kind()) }
    }
}

fn another_kind() -> Error {
    Error::invalid("the reply belongs to another kind of operation")
}

impl Store {
    /// Sends calls in one request, in order. Returns a result for each call, with a reply for each of its operations. All
    /// keys must differ, because a call whose script is missing runs again after the others.
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

    /// Sets and deletes the marker keys of a call, if they need calls of their own.
    pub(super) async fn apply_marker_changes(&self, call: &OpCall<'_>, replies: &mut [Result<OpReply>]) {
        if !call.flags.marker_keys || !self.markers_need_own_calls() {
            return;
        }
        let (mut wanted, mut receipts, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut set_later = |key, deadline, attempt, moved| {
            wanted.push(MarkerWrite { key, deadline: unix_ms(deadline), attempt, moved });
        };
        for (op, reply) in call.ops.iter().zip(replies) {
            let (key, Ok(reply)) = (op.key().clone(), reply) else { continue };
            match reply {
                OpReply::Armed(ArmResult::Armed(receipt)) => {
                    set_later(key, receipt.deadline, 1, false);
                    receipts.push(receipt);
                }
                OpReply::Armed(ArmResult::Replaced(receipt)) => {
                    set_later(key, receipt.deadline, 1, true);
                    receipts.push(receipt);
                }
                OpReply::Cancelled(CancelReply { deadline: Some(deadline), .. }) => {
                    ended.push((key, *deadline));
                }
                OpReply::Rescheduled(Rescheduled::Rescheduled(to)) => set_later(key, *to, 0, true),
                _ => {}
            }
        }
        self.delete_markers(&ended).await;
        for (receipt, marker) in receipts.into_iter().zip(self.set_markers(&wanted).await) {
            receipt.marker = marker;
        }
    }

    pub(super) fn op_call<'a>(&'a self, at: &'a PartitionNames, call: &OpCall<'_>) -> ScriptCall<'a> {
        let OpFlags { only_if_absent, marker_keys, repeat } = call.flags;
        let modes = [
            if only_if_absent { b'a' } else { b'r' },
            digit(repeat),
            digit(self.scripts_set_markers(marker_keys)),
        ];
        let is_arm = call.script().name == scripts::ARM.name;
        let mut script = self.call(call.script(), at);
        script.arg(if is_arm { &modes[..] } else { &modes[2..] });
        let mut before = None;
        call.ops.iter().for_each(|op| op.write(&mut script, &mut before));
        script
    }

    /// Returns whether the scripts write the marker keys, if these are wanted.
    pub(super) fn scripts_set_markers(&self, marker_keys: bool) -> bool {
        marker_keys && !self.markers_need_own_calls()
    }

    /// Reads the reply of a producer script: a code for each timer, and two error texts after these.
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
        let (unpublished, refused) = texts.split_once('\n').unwrap_or_default();
        let wake_up_error = (!unpublished.is_empty()).then(|| self.wake_up_error(at, unpublished));
        let not_moved = each.iter().filter(|one| one.marker == REFUSED).count();
        if not_moved > 0 && script == scripts::RESCHEDULE.name {
            debug!(topic = %at.topic, refused = not_moved, error = %marker_refusal(refused), "cannot move marker keys");
        }
        let replies = call.ops.iter().zip(each);
        replies
            .map(|(op, one)| one.reply(op, wake_up_error.as_ref(), refused).ok_or_else(unexpected))
            .collect()
    }
}

/// The reply of a script for one timer.
struct RawOpReply {
    code: u8,
    marker: u8,
    deadline: u64,
}

/// The code of a marker key that the user may not write.
const REFUSED: u8 = 3;

impl RawOpReply {
    const LENGTH: usize = 10;

    fn read(bytes: &[u8]) -> Self {
        let deadline = bytes[2..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Self { code: bytes[0], marker: bytes[1], deadline }
    }

    /// Converts the reply. Returns `None` for a code that the script does not have. `wake_up_error` is why the wake-up was
    /// refused, and `refused` why marker keys were.
    fn reply(&self, op: &Op, wake_up_error: Option<&Error>, refused: &str) -> Option<Result<OpReply>> {
        Some(Ok(match op {
            Op::Arm(timer) => OpReply::Armed(match self.code {
                0 => ArmResult::Armed(self.receipt(timer, wake_up_error, refused)),
                1 => ArmResult::Replaced(self.receipt(timer, wake_up_error, refused)),
                2 => ArmResult::AfterRunning(self.receipt(timer, wake_up_error, refused)),
                3 => ArmResult::Exists,
                4 => ArmResult::Superseded,
                5 => return Some(Err(deadline_too_far())),
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
                3 => return Some(Err(deadline_too_far())),
                _ => return None,
            }),
        }))
    }

    fn receipt(&self, timer: &NewTimer, wake_up_error: Option<&Error>, refused: &str) -> Receipt {
        Receipt {
            id: timer.arming,
            deadline: system_time(self.deadline),
            marker: match self.marker {
                0 => MarkerKey::None,
                1 => MarkerKey::Set,
                REFUSED => MarkerKey::Failed(marker_refusal(refused)),
                _ => MarkerKey::Taken,
            },
            reached: None,
            wake_up_error: wake_up_error.cloned(),
        }
    }
}

fn digit(set: bool) -> u8 {
    if set { b'1' } else { b'0' }
}

fn deadline_too_far() -> Error {
    Error::invalid("the deadline is beyond the year 2248 by the server's clock, which is not supported")
}
