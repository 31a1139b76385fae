//! A call with everything filled in, and what a store answers to it.

use crate::model::rig::{ArmReply, LEASE, Rig, keys};
use crate::produce::{Cancel, Produce};
use bytes::Bytes;
use keylapse::dead_letters::Replayed;
use keylapse::{Cancelled, ErrorKind, Rescheduled, Result};
use keylapse_connection::id::SlotId;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    AckReply, CancelReply, Claim, Claimed, DeadLetterLimits, LeaseRef, NewTimer, OpFlags, RepairTarget,
    ReplayCall, Settle, SettleReply,
};

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Arm { timers: Vec<NewTimer>, only_if_absent: bool, repeat: bool },
    Cancel { timers: Vec<Cancel>, repeat: bool },
    Reschedule(Bytes, WireWhen),
    Claim(Claim),
    Ack(Vec<LeaseRef>),
    Settle(Vec<Settle>),
    Renew(Vec<LeaseRef>),
    Pause(Option<&'static str>),
    Repair(RepairTarget),
    Replay(ReplayCall),
    DropLetter(Bytes),
    CloseSlot(SlotId),
}

/// Answers are compared as they are shown.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Armed(Vec<ArmReply>),
    Cancelled(Vec<CancelReply>),
    Rescheduled(Rescheduled),
    Claimed(Box<Claimed>),
    Acked(AckReply),
    Settled(Vec<SettleReply>),
    Renewed(Vec<usize>),
    Paused(Option<String>),
    /// How many were put right in the end; cursors differ.
    Repaired(u64),
    Replayed(Replayed),
    Dropped(bool),
    Closed,
    Refused(ErrorKind),
}

impl Call {
    /// The call of a client that got no answer.
    pub(crate) fn repeated(&self) -> Self {
        let mut again = self.clone();
        match &mut again {
            Self::Arm { repeat, .. } | Self::Cancel { repeat, .. } => *repeat = true,
            Self::Claim(call) => call.repeat = true,
            Self::Replay(call) => call.repeat = true,
            // These are what they are, however often they are made.
            _ => {}
        }
        again
    }

    /// Whether a client that has made `later` would not repeat this call: a listener
    /// makes one claim at a time, and not after its slot is closed.
    pub(crate) fn is_past_after(&self, later: &Self) -> bool {
        let Self::Claim(Claim { slot, token, .. }) = self else { return false };
        match later {
            Self::Claim(later) => later.slot == *slot && later.token != *token,
            Self::CloseSlot(closed) => closed == slot,
            Self::Repair(what) => *what == RepairTarget::Slots,
            _ => false,
        }
    }

    pub(crate) async fn make(&self, rig: &Rig, letters: DeadLetterLimits) -> Answer {
        self.try_make(rig, letters).await.unwrap_or_else(|error| Answer::Refused(error.kind()))
    }

    async fn try_make(&self, rig: &Rig, letters: DeadLetterLimits) -> Result<Answer> {
        let (store, at) = (&rig.store, &rig.at);
        Ok(match self {
            Self::Arm { timers, only_if_absent, repeat } => {
                let flags =
                    OpFlags { only_if_absent: *only_if_absent, repeat: *repeat, ..OpFlags::default() };
                Answer::Armed(rig.arm(flags, timers).await?)
            }
            Self::Cancel { timers, .. } => Answer::Cancelled(store.cancel(at, timers).await?),
            Self::Reschedule(key, when) => Answer::Rescheduled(store.reschedule(at, key, *when).await?),
            Self::Claim(call) => Answer::Claimed(Box::new(store.claim(at, *call).await?)),
            Self::Ack(held) => Answer::Acked(store.ack(at, false, held).await?),
            Self::Settle(ends) => Answer::Settled(store.settle(at, letters, false, ends).await?.each),
            Self::Renew(held) => Answer::Renewed(store.renew(at, LEASE, held).await?),
            Self::Pause(reason) => Answer::Paused(store.pause(at, *reason).await?),
            Self::Repair(what) => Answer::Repaired(rig.repair(*what).await?),
            Self::Replay(call) => Answer::Replayed(store.replay(at, call).await?),
            Self::DropLetter(letter) => Answer::Dropped(store.drop_letter(at, letter).await?),
            Self::CloseSlot(slot) => {
                store.release_claimer(at, *slot).await?;
                Answer::Closed
            }
        })
    }
}

impl Answer {
    pub(crate) fn claimed(&self) -> Option<&Claimed> {
        match self {
            Self::Claimed(claimed) => Some(claimed),
            _ => None,
        }
    }

    /// Whether this is what the repeat of a call may answer after `first`.
    pub(crate) fn repeats(&self, first: &Self) -> bool {
        match (first, self) {
            (Self::Armed(first), Self::Armed(second)) => first == second,
            (Self::Cancelled(first), Self::Cancelled(second)) => {
                // A repeat does not know whether the deadline was still to come.
                let same = |first, second| {
                    first == second || (first, second) == (Cancelled::Claimed, Cancelled::InFlight)
                };
                first.iter().zip(second).all(|(first, second)| same(first.result, second.result))
            }
            (Self::Claimed(first), Self::Claimed(second)) => keys(first) == keys(second),
            (Self::Settled(_), Self::Settled(second)) => {
                second.iter().all(|reply| *reply == SettleReply::Gone)
            }
            (Self::Rescheduled(first), Self::Rescheduled(second)) => first == second,
            (Self::Renewed(first), Self::Renewed(second)) => first == second,
            (Self::Replayed(first), Self::Replayed(second)) => first == second,
            _ => true,
        }
    }
}
