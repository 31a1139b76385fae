//! Arming timers, and waiting until that is replicated or on disk.

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

/// A timer to arm.
#[derive(Clone)]
pub struct NewTimer {
    /// The key.
    pub key: Bytes,
    /// When the timer is due.
    pub when: WireWhen,
    /// The ID of the arming.
    pub arming: ArmingId,
    /// The payload that the handler receives.
    pub payload: Bytes,
    /// The trace context of the producer.
    pub trace: Option<Traceparent>,
    /// The arming whose running attempt makes this call.
    pub by: Option<ArmingId>,
}

impl fmt::Debug for NewTimer {
    /// Leaves out the payload, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewTimer({}, {}, {})", Escaped(&self.key), self.when, self.arming)
    }
}

/// The result of an arm.
///
/// ```
/// # use keylapse_wire as keylapse;
/// use keylapse::ArmResult;
///
/// /// Answers the customer who placed an order.
/// fn answer(result: &ArmResult) -> &'static str {
///     match result {
///         ArmResult::Armed(_) | ArmResult::Replaced(_) | ArmResult::AfterRunning(_) => "pay within 15 min",
///         ArmResult::Exists => "you have placed this order before", // only with `only_if_absent`
///         _ => "the order was changed at the same time",
///     }
/// }
/// assert_eq!(answer(&ArmResult::Exists), "you have placed this order before");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "an arm may have changed nothing"]
pub enum ArmResult {
    /// The key had no timer, and has one now.
    Armed(Receipt),
    /// The new timer has replaced a waiting one.
    Replaced(Receipt),
    /// An attempt is running, so the arming is queued. It takes effect when that timer ends, or in place of its retry.
    AfterRunning(Receipt),
    /// The key has a timer, which the call was to leave alone.
    Exists,
    /// An earlier try of this call has armed the timer. Since then it was cancelled or replaced, or a queued arming took its
    /// place. This happens when the reply of the earlier try was lost, or when the call reached the server twice.
    Superseded,
}

impl ArmResult {
    /// Returns the receipt, if this call armed a timer.
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

    /// Returns whether this call armed a timer.
    pub fn is_armed(&self) -> bool {
        self.receipt().is_some()
    }
}

/// Proof of an arming.
///
/// ```
/// # use keylapse_wire as keylapse;
/// use keylapse::{ArmResult, Receipt};
///
/// /// Logs when an unpaid order is closed, and the ID that its handler receives.
/// fn log(result: &ArmResult) {
///     let Some(Receipt { id, deadline, wake_up_error, .. }) = result.receipt() else { return };
///     println!("closes at {deadline:?}, lapse {id}");
///     if let Some(error) = wake_up_error {
///         println!("it may be closed late: {error}");
///     }
/// }
/// # log(&ArmResult::Exists);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The ID of the arming.
    pub id: ArmingId,
    /// When the timer is due, by the server's clock.
    pub deadline: SystemTime,
    /// The state of the marker key.
    pub marker: MarkerKey,
    /// How far the arming was replicated when the call returned, if the call waited for that.
    pub reached: Option<Reached>,
    /// Why the server refused to publish a wake-up, if it did. Mostly the user lacks `+spublish`, or the channels
    /// `&keylapse:*`. Listeners then find the timer in a sweep, up to five seconds late.
    pub wake_up_error: Option<Error>,
}

/// The state of a marker key after an arm. The timer fires in each of these states, because only the index decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkerKey {
    /// The marker key exists, and expires at the deadline.
    Set,
    /// There is no marker key: the topic has none, the deadline has passed, or the arming waits for a running attempt.
    None,
    /// The key holds another value, which was left alone. Another program wrote it, or it is the marker key of a cancelled
    /// timer whose deletion failed.
    Taken,
    /// The marker key could not be written.
    Failed(Error),
}

/// How far an arming must be replicated before the call returns.
///
/// Asynchronous replication can lose acknowledged writes. Waiting makes that less likely, but does not exclude it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Durably {
    replicas: u32,
    local_fsync: bool,
    /// How long the call waits, in ms.
    #[doc(hidden)]
    pub within_ms: u64,
}

impl Durably {
    /// Waits for this many replicas (WAIT).
    pub fn replicas(count: u32) -> Self {
        Self { replicas: count, local_fsync: false, within_ms: 1000 }
    }

    /// Waits until the server and this many replicas have flushed their append-only files (WAITAOF; Redis 7.2, Valkey 7.2
    /// or newer). A server without WAITAOF, or without such a file, refuses the arm, and nothing is armed.
    pub fn fsync(replicas: u32) -> Self {
        Self { replicas, local_fsync: true, within_ms: 1000 }
    }

    /// Sets how long the call waits for the replicas, at least 1 ms. After that time it returns how many have confirmed.
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

/// How far a write was replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The number of replicas that have it.
    pub replicas: u32,
    /// True if the server has flushed it to its append-only file.
    pub local_fsync: bool,
}

impl Reached {
    /// Reads the reply of WAIT or WAITAOF.
    fn read(answer: Value) -> Option<Self> {
        let (synced, replicas): (i64, u32) = match answer {
            Value::Int(_) => (0, keylapse_connection::from_redis_value(answer).ok()?),
            both => keylapse_connection::from_redis_value(both).ok()?,
        };
        Some(Self { replicas, local_fsync: synced > 0 })
    }
}

impl Store {
    /// Arms a timer, and waits until that is replicated or on disk. WAIT covers only the writes of its own connection, so
    /// the arm uses the same one. A missing partition is created before.
    pub async fn arm_durably(
        &self,
        at: &PartitionNames,
        flags: OpFlags,
        op: &Op,
        ask: Durably,
    ) -> Result<ArmResult> {
        self.check_can_wait(at, ask).await?;
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

    /// Checks before the arm that the server can wait for the disk. An error code is a refusal. If the reply is lost, the
    /// arm on the same connection reports the fault.
    async fn check_can_wait(&self, at: &PartitionNames, ask: Durably) -> Result<()> {
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

    /// Sends a command on the connection whose commands may wait.
    async fn wait_at(&self, at: &PartitionNames, doing: &str, command: &Cmd) -> Result<Value> {
        self.0.topology.at_waiting(at.slot, |server| async move { server.call(doing, command).await }).await
    }

    /// Returns the server's version for a message.
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
