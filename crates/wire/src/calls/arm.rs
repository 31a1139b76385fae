//! Arming timers.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse_connection::{Cmd, Value, cmd};

use crate::connection::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::{Escaped, escape_line};
use crate::id::ArmingId;
use crate::time::{WireWhen, ms_ceil};
use crate::trace::Traceparent;
use crate::{Op, OpCall, OpFlags, PartitionNames, Store};

/// A timer to be.
#[derive(Clone)]
pub struct NewTimer {
    /// Its key.
    pub key: Bytes,
    /// When it is due.
    pub when: WireWhen,
    /// The arming's id.
    pub arming: ArmingId,
    /// What the handler gets.
    pub payload: Bytes,
    /// Where the producer's trace stands.
    pub trace: Option<Traceparent>,
    /// The timer whose running attempt arms it.
    pub by: Option<ArmingId>,
}

impl fmt::Debug for NewTimer {
    /// Without the payload, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewTimer({}, {}, {})", Escaped(&self.key), self.when, self.arming)
    }
}

/// The result of an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "an arm may have changed nothing"]
pub enum ArmResult {
    /// There was no timer of this key; now there is.
    Armed(Receipt),
    /// It took the place of a waiting timer.
    Replaced(Receipt),
    /// An attempt is running: this is kept, and takes effect when that timer
    /// ends, or in place of its retry.
    AfterRunning(Receipt),
    /// There is a timer, and it was to be left alone.
    Exists,
    /// The arm was made, but its answer was lost, or it came a second time, late; by
    /// then somebody had cancelled or replaced it.
    Superseded,
}

impl ArmResult {
    /// The receipt, where this call armed something that stands.
    pub fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Armed(receipt) | Self::Replaced(receipt) | Self::AfterRunning(receipt) => Some(receipt),
            Self::Exists | Self::Superseded => None,
        }
    }

    fn having_reached(mut self, reached: Reached) -> Self {
        if let Self::Armed(receipt) | Self::Replaced(receipt) | Self::AfterRunning(receipt) = &mut self {
            receipt.reached = Some(reached);
        }
        self
    }

    /// Whether this call armed something that stands.
    pub fn is_armed(&self) -> bool {
        self.receipt().is_some()
    }
}

/// Proof of an arming.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The arming's id.
    pub id: ArmingId,
    /// When it is due, by the server's clock.
    pub deadline: SystemTime,
    /// The state of the trigger key.
    pub marker: MarkerKey,
    /// How far the arming had travelled when the call returned, if that was
    /// asked for.
    pub reached: Option<Reached>,
    /// Why listeners could not be told of it, if that was tried and refused: mostly the
    /// user lacks the right to publish (`+spublish`, and the channels `&keylapse:*`).
    /// The timer is then found by the listeners' sweeps, up to five seconds late.
    pub wake_up_error: Option<Error>,
}

/// The state of a trigger key after an arm. Whatever it is, the timer fires: the index
/// is the truth.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkerKey {
    /// It stands, and expires at the deadline.
    Set,
    /// None is kept: the topic has none, the deadline has passed, or the arming
    /// waits for a running attempt.
    None,
    /// The name holds a value that is not known to be ours, and was left alone:
    /// somebody else's, or the key of a cancelled timer whose deletion failed.
    Taken,
    /// It could not be written.
    Failed(Error),
}

/// How far an arming is to travel before the call returns.
///
/// Asynchronous replication can lose acknowledged writes; this narrows the
/// window, and no more than that.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Durably {
    replicas: u32,
    local_fsync: bool,
    /// For how long the call waits, in ms.
    #[doc(hidden)]
    pub within_ms: u64,
}

impl Durably {
    /// On this many replicas (WAIT).
    pub fn replicas(count: u32) -> Self {
        Self { replicas: count, local_fsync: false, within_ms: 1000 }
    }

    /// In the server's append-only file, flushed, and so on this many replicas
    /// (WAITAOF; Redis 7.2, Valkey 7.2 or newer). On a server that cannot do that, or keeps
    /// no such file, the arm is refused, and nothing is armed.
    pub fn fsync(replicas: u32) -> Self {
        Self { replicas, local_fsync: true, within_ms: 1000 }
    }

    /// How long to wait for that; the call then returns what was reached.
    /// Default: 1 s, at most 4 s.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within_ms = ms_ceil(limit).clamp(1, 4000);
        self
    }

    fn command(self) -> Cmd {
        let mut wait = cmd(if self.local_fsync { "WAITAOF" } else { "WAIT" });
        wait.arg(self.local_fsync.then_some(1)).arg(self.replicas).arg(self.within_ms);
        wait
    }
}

/// How far a write has travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Replicas that have it.
    pub replicas: u32,
    /// Whether it is flushed to this server's append-only file.
    pub local_fsync: bool,
}

impl Reached {
    /// What WAIT and WAITAOF answer; none where that is something else.
    fn read(answer: Value) -> Option<Self> {
        let (synced, replicas): (i64, u32) = match answer {
            Value::Int(_) => (0, keylapse_connection::from_redis_value(answer).ok()?),
            both => keylapse_connection::from_redis_value(both).ok()?,
        };
        Some(Self { replicas, local_fsync: synced > 0 })
    }
}

impl Store {
    /// Arms a timer, and waits until that is replicated or on disk. The wait speaks for its own connection
    /// only, so the arm goes there, too; what may be missing is supplied beforehand.
    pub async fn arm_durably(
        &self,
        at: &PartitionNames,
        flags: OpFlags,
        op: &Op,
        ask: Durably,
    ) -> Result<ArmResult> {
        self.can_wait(at, ask).await?;
        self.ensure_partition(at).await?;
        let call = OpCall { flags, ops: vec![op] };
        let script = &self.op_call(at, &call);
        let arm = |server: Server| async move { Ok((script.run_on(&server).await?, server)) };
        let (answer, server) = self.0.topology.at_waiting(at.slot, arm).await?;
        let waited = server.plain().call("waiting for replicas", &ask.command()).await;
        let reached = waited.ok().and_then(Reached::read).unwrap_or_default();
        let mut replies = self.op_replies(at, &call, answer)?;
        self.apply_marker_changes(&call, &mut replies).await;
        let missing =
            || Error::new(ErrorKind::Internal, "the server sent no result for the arm").unanswered();
        Ok(replies.pop().ok_or_else(missing)??.armed()?.having_reached(reached))
    }

    /// Asks for the disk before anything is armed: an answer with an error code is a refusal. Of what has no
    /// answer, the arm on the same connection will tell.
    async fn can_wait(&self, at: &PartitionNames, ask: Durably) -> Result<()> {
        if !ask.local_fsync {
            return Ok(());
        }
        let probe = Durably { replicas: 0, within_ms: 1, ..ask }.command();
        match self.wait_at(at, "waiting for the disk", &probe).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let message = format!(
                    "durably(fsync) needs WAITAOF, which {} does not have: use Redis 7.2, Valkey 7.2 or newer, \
                     or ask for replicas",
                    self.version(at).await
                );
                Err(Error::new(ErrorKind::Unsupported, message).with_code(error.code()))
            }
            Err(error) if error.code().is_some() => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends a command where it may wait.
    async fn wait_at(&self, at: &PartitionNames, doing: &str, command: &Cmd) -> Result<Value> {
        self.0.topology.at_waiting(at.slot, |server| async move { server.call(doing, command).await }).await
    }

    /// What the server calls itself.
    async fn version(&self, at: &PartitionNames) -> String {
        let info = self.wait_at(at, "asking for the version", cmd("INFO").arg("server")).await;
        let info = info
            .ok()
            .and_then(|info| keylapse_connection::from_redis_value::<String>(info).ok())
            .unwrap_or_default();
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        version
            .map_or_else(|| "this server".to_owned(), |version| format!("Redis {}", escape_line(version, 40)))
    }
}
