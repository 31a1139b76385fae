//! The only place that knows what lies in Redis: names, records, scripts, and how they are called.
//! docs/wire.md is the contract.

pub mod calls;
#[cfg(test)]
mod constants;
pub(crate) mod copy;
#[cfg(any(test, feature = "testing"))]
mod encode;
pub mod names;
pub mod record;
pub(crate) mod reply;
pub(crate) mod run;
pub mod scripts;
pub(crate) mod settings;
pub mod store;
mod wrong_type;

pub(crate) use self::calls::MAX_BATCH;
pub(crate) use self::calls::arm::{Arm, Arming, Durably, NewTimer, TriggerKey};
pub(crate) use self::calls::attached::{
    Deed, DueChecks, Enrolled, Enrolment, Found, Judged, Life, Next, Note, Noted, Position, TakeChecks,
    Watch, read_touched, touch_command,
};
pub(crate) use self::calls::cancel::{Cancel, Cancelled, Rescheduled};
pub(crate) use self::calls::claim::{Claim, Claimed, ClaimedTimer, Index};
pub(crate) use self::calls::letters::{LetterBounds, LetterPosition, RawLetter, Replayed};
pub(crate) use self::calls::look::Look;
pub(crate) use self::calls::partition::TopicEntry;
pub(crate) use self::calls::repair::{RepairStep, Scan};
pub(crate) use self::calls::settle::{End, Held, Settle, SettleReply};
pub(crate) use self::calls::triggers::{Trigger, TriggerReply};
pub(crate) use self::calls::write_back::WrittenBack;
pub(crate) use self::names::{
    DEFAULT_NAMESPACE, MAX_PARTITIONS, PartitionNames, check_name, fnv1a, is_own, partition_of,
};
pub(crate) use self::record::{DeadReason, FailedAttempt, History, Letter, Record, State};
#[cfg(any(test, fuzzing))]
pub(crate) use self::reply::Reply;
pub(crate) use self::run::script_call;
pub(crate) use self::store::{DEFAULT_ANSWER_WITHIN, Store};
