//! What may happen, before it is known to what.

use keylapse_wire::{Index, RepairTarget};

/// One step of a random life.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Whether the answer is lost, so that the call is repeated.
    pub(crate) lost: bool,
}

/// Numbers that choose among what is there wrap around, so that every step
/// means something and sequences shrink well.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Arm {
        timers: Vec<Ahead>,
        absent: bool,
    },
    Cancel(Vec<usize>),
    Reschedule(Ahead),
    Claim(Ask),
    Ack(Vec<Pick>),
    Settle(Vec<(Pick, Ending)>),
    Renew(Vec<Pick>),
    Pass(Pass),
    Pause(bool),
    Repair(RepairTarget),
    Replay {
        letter: usize,
        as_new: bool,
    },
    DropLetter(usize),
    CloseSlot(u64),
    /// A late repeat of a call made this many calls ago.
    Echo(usize),
    /// Data that breaks by itself.
    Break {
        key: usize,
        how: Broken,
    },
}

/// A key and when it is to be due.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) key: usize,
    pub(crate) when: When,
    pub(crate) payload: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    In(u64),
    /// A time, this many milliseconds from now.
    At(i64),
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) index: Index,
    pub(crate) slot: u64,
    pub(crate) limit: usize,
    pub(crate) bytes: usize,
    pub(crate) lookahead_ms: u64,
    pub(crate) lease_ms: u64,
}

/// One of the timers that were ever claimed, counted from the last; so most
/// tokens are stale.
pub(crate) type Pick = usize;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Retry(u64),
    Snooze(u64),
    Again(u64),
    Dead,
    Release,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pass {
    Micros(u64),
    Ms(u64),
    /// To the next head, and this many microseconds beyond.
    Head(i64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Broken {
    NoIndexEntry,
    NoRecord,
    NoState,
    /// A record of this many bytes.
    ShortRecord(usize),
    /// A state of this many bytes.
    ShortState(usize),
    NewerRecord,
    NewerState,
}
