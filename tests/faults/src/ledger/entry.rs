//! What a ledger's line says.

use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::job::Work;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When.
    pub at: Micros,
    /// Who wrote it.
    pub pid: u32,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Entry {
    /// A producer is about to arm.
    ArmAsked {
        /// The arming's number.
        n: u64,
        /// The key.
        key: String,
        /// What the handler will do.
        work: Work,
        /// The delay that is asked for.
        delay_ms: u64,
    },
    /// The call returned.
    ArmTold {
        /// The arming's number.
        n: u64,
        /// What it said.
        told: Told,
        /// The deadline that it named.
        deadline: Option<Micros>,
        /// Whether as many replicas had it by then as were asked for; none if none were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reached: Option<bool>,
    },
    /// A producer is about to cancel.
    CancelAsked {
        /// The key.
        key: String,
    },
    /// The call returned.
    CancelTold {
        /// The key.
        key: String,
        /// What it said.
        told: Told,
    },
    /// A writer that knows nothing of keylapse is about to write a key.
    WriteAsked {
        /// The key.
        key: String,
        /// The command.
        how: String,
        /// What the key is then.
        life: Life,
    },
    /// The command was answered.
    WriteTold {
        /// The key.
        key: String,
        /// How.
        wrote: Wrote,
        /// Of several servers, the port of the one that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u16>,
        /// Whether all replicas that were asked for had it soon after; none if none were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reached: Option<bool>,
    },
    /// A plain subscriber heard that a key has expired.
    Heard {
        /// The key.
        key: String,
        /// The port of the server that announced it; none where there is one server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u16>,
    },
    /// A key was seen to be expected.
    Enrolled {
        /// The key.
        key: String,
    },
    /// How many listeners were seen to be subscribed to a server from now on.
    Subscribed {
        /// Its port.
        node: u16,
        /// How many.
        listeners: usize,
    },
    /// A handler of the attached topic began.
    Fired {
        /// The key.
        key: String,
        /// The lapse's id.
        id: String,
        /// The attempt.
        attempt: u32,
        /// The deadline that the handler is told.
        deadline: Micros,
        /// What made it lapse.
        expiry: String,
    },
    /// A key was found among the dead letters.
    Buried {
        /// The key.
        key: String,
    },
    /// It ended.
    FiredEnded {
        /// The key.
        key: String,
        /// The lapse's id.
        id: String,
        /// The attempt.
        attempt: u32,
        /// How.
        end: End,
    },
    /// A handler began.
    Started {
        /// The arming's number, from the payload.
        n: u64,
        /// The key.
        key: String,
        /// The attempt.
        attempt: u32,
        /// The attempt's deadline, as the handler is told it.
        deadline: Micros,
        /// What brought it: timer, notification or sweep.
        source: String,
    },
    /// It ended.
    Ended {
        /// The arming's number.
        n: u64,
        /// The attempt.
        attempt: u32,
        /// How.
        end: End,
    },
    /// A handler saw that it held the lease, from the end of its first look that said so to the beginning of the last.
    Leased {
        /// The arming's number.
        n: u64,
        /// Since when.
        since: Micros,
        /// Until when.
        until: Micros,
    },
    /// A whole process stood still from then until the line's time, for want of a processor.
    Stalled {
        /// Since when.
        since: Micros,
    },
    /// A process drops its listener, and with it all that it holds.
    LetGo,
    /// A process of the run was started.
    Born {
        /// Its pid.
        child: u32,
        /// The part it plays, which outlives it: `listener 0`.
        actor: String,
    },
    /// It is about to be killed. On a busy machine it can be a while until that is done and known.
    Killed {
        /// Its pid.
        child: u32,
    },
    /// It has ended.
    Died {
        /// Its pid.
        child: u32,
        /// With what status.
        status: String,
    },
    /// A fault that is over.
    Fault {
        /// When it began; the line's time is its end.
        since: Micros,
        /// Whom it concerns: an actor, or everybody.
        actor: Option<String>,
        /// What it was.
        fault: String,
        /// Whether it keeps those whom it concerns from the server.
        is_outage: bool,
        /// Of several servers, what was kept on the one that it befell; everything, if that is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partitions: Option<Vec<u32>>,
        /// And the port of that server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u16>,
    },
    /// Slots have moved since then; the line's time is the end of it.
    Moved {
        /// When it began.
        since: Micros,
        /// How many.
        slots: usize,
    },
    /// A server has taken the place of another; the line's time is when the old one had learned of it.
    Succession(Succession),
}

/// A server that took the place of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succession {
    /// What is kept there.
    pub partitions: Vec<u32>,
    /// The port of the old one.
    pub node: u16,
    /// The port of the new one.
    pub successor: u16,
    /// Whether the old one gave its place away with all that it had.
    pub is_orderly: bool,
    /// When the old one was killed, stopped, or told to make way.
    pub since: Micros,
    /// Until when nobody but the old one can have acknowledged anything.
    pub sole_until: Micros,
    /// When the new one was first seen in its place.
    pub promoted: Micros,
    /// What it had then.
    pub held: Held,
}

/// What a server had that took the place of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The numbers of armings.
    pub numbers: Vec<u64>,
    /// The keys of other programs that had not expired.
    pub keys: Vec<String>,
    /// Those that were expected, of the partitions it took.
    pub enrolled: Vec<String>,
    /// When it was first looked at.
    pub looked: Micros,
}

impl Held {
    /// And what it had later.
    pub fn and(&mut self, later: Self) {
        self.numbers.extend(later.numbers);
        self.keys.extend(later.keys);
        self.enrolled.extend(later.enrolled);
    }
}

/// How a call of a producer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// `Armed`.
    Armed,
    /// `Replaced`.
    Replaced,
    /// `AfterRunning`.
    AfterRunning,
    /// `Superseded`.
    Superseded,
    /// `Cancelled`.
    Cancelled,
    /// `InFlight`.
    InFlight,
    /// `NotArmed`.
    NotArmed,
    /// An error that proves that nothing was done.
    Refused,
    /// An error that leaves open whether it was done.
    Unknown,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The handler succeeded.
    Done,
    /// It failed, or panicked.
    Failed,
    /// It was dropped before its end: the lease was lost, or the listener stopped.
    Dropped,
}

/// How a key lives on after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// Until then.
    Until(Micros),
    /// For so many milliseconds.
    For(u64),
    /// Without a deadline.
    Endless,
    /// Not at all.
    Gone,
    /// Not at all, since it has expired by that.
    Expired,
}

/// How a command of a writer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrote {
    /// It was done.
    Done,
    /// There was no such key, or it was refused: nothing was done.
    Nothing,
    /// Nobody knows.
    Unknown,
}
