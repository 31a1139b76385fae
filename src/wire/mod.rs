//! The seam between keylapse and the place where timers are kept.
//!
//! [`Store`] has two implementations, [`Store`] and [`MemoryStore`], held
//! to one conformance suite. Applications use [`Schedule`](crate::Schedule)
//! and [`Listener`](crate::Listener); this module is for tools and tests, and
//! may change in minor releases.
//!
//! Every call is safe to repeat after its answer was lost: the caller sets
//! `repeat`, and gets the answer of the first execution, or of this one if
//! there was none. First tries pay nothing for that.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::error::Result;
use crate::id::{ArmingId, SlotId};
use crate::time::WireWhen;

pub mod foreign;
pub mod keys;
mod memory;
pub mod record;
pub(crate) mod redis;
mod types;

pub use self::memory::{Clock, MemoryStore};
pub use self::redis::{DEFAULT_ANSWER_WITHIN, Store, scripts};
pub use self::types::*;
use foreign::ForeignKeys;
use keys::Partition;

/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;
/// Leases lost before a timer waits alone, as a suspect.
pub const QUARANTINE_AT: u8 = 2;
/// Leases lost before a timer is buried.
pub const DEAD_AT: u8 = 4;

/// Where timers are kept.
#[async_trait]
pub trait Store: Send + Sync + Debug + 'static {
    /// Creates or replaces timers.
    async fn arm(&self, at: &Partition, call: Arm<'_>) -> Result<Stamped<Vec<ArmReply>>>;

    /// Withdraws timers.
    async fn cancel(&self, at: &Partition, timers: &[Cancel], repeat: bool) -> Result<Vec<CancelReply>>;

    /// Moves a waiting timer to another deadline.
    async fn reschedule(&self, at: &Partition, key: &[u8], when: WireWhen) -> Result<RescheduleReply>;

    /// Reads one timer.
    async fn look(&self, at: &Partition, key: &[u8]) -> Result<Option<Look>>;

    /// Takes what is due.
    async fn claim(&self, at: &Partition, call: Claim) -> Result<Claimed>;

    /// Removes timers whose attempt is done.
    async fn ack(&self, at: &Partition, held: &[Held]) -> Result<Stamped<AckReply>>;

    /// Ends attempts in any other way.
    async fn settle(&self, at: &Partition, letters: Letters, ends: &[Settle]) -> Result<Vec<SettleReply>>;

    /// Extends leases; answers the places of those that are lost.
    async fn renew(&self, at: &Partition, lease_ms: u64, held: &[Held]) -> Result<Vec<usize>>;

    /// The earliest scores of partitions, read cheaply; of none, only the time.
    async fn peek(&self, partitions: &[Partition]) -> Result<Stamped<Vec<Heads>>>;

    /// Pauses a partition with a reason, or resumes it. Answers the reason that
    /// stood there before.
    async fn pause(&self, at: &Partition, reason: Option<&str>) -> Result<Option<String>>;

    /// Reads dead letters, oldest first.
    async fn letters(&self, at: &Partition, skip: usize, count: usize) -> Result<Vec<RawLetter>>;

    /// How many dead letters there are, and how many have been trimmed.
    async fn letter_counts(&self, at: &Partition) -> Result<(u64, u64)>;

    /// Arms a dead letter's record again, for now.
    async fn replay(&self, at: &Partition, letter: &[u8], arming: ArmingId) -> Result<ReplayReply>;

    /// Forgets a dead letter; whether there was one.
    async fn drop_letter(&self, at: &Partition, letter: &[u8]) -> Result<bool>;

    /// Takes one step of the slow repair.
    async fn tidy(&self, at: &Partition, step: RepairStep) -> Result<Repaired>;

    /// Sets trigger keys.
    async fn set_triggers(&self, triggers: &[Trigger]) -> Result<Vec<TriggerReply>>;

    /// Deletes a trigger key if it is ours and expires then.
    async fn drop_trigger(&self, key: &[u8], deadline: u64) -> Result<bool>;

    /// Reads trigger keys, so that the server expires those that are due.
    async fn touch(&self, keys: &[Bytes]) -> Result<()>;

    /// RetryDelays until earlier writes of this store are replicated or on disk.
    async fn arm_durably(
        &self,
        at: &Partition,
        call: Arm<'_>,
        ask: Durability,
    ) -> Result<(Stamped<Vec<ArmReply>>, Reached)>;

    /// Makes sure that the partitions exist as the caller believes, and lists
    /// the topic for others to find.
    async fn register(&self, topic: &TopicEntry, partitions: &[Partition]) -> Result<()>;

    /// Reports settings that weaken a promise, once for each change; adds the
    /// flags for expired events only where asked to.
    async fn check_settings(&self, _manage_notifications: bool) -> Result<()> {
        Ok(())
    }

    /// Opens the stream of events: wake-ups, fences, expired keys and gaps.
    ///
    /// It lives until the receiver is dropped, and mends itself.
    fn events(&self, partitions: &[Partition]) -> mpsc::Receiver<Event>;

    /// The keys that other programs write, for attached topics; none where there are no others.
    fn foreign(&self) -> Option<Arc<dyn ForeignKeys>> {
        None
    }

    /// Whether this store's time is tokio's, which tests may pause and advance.
    fn virtual_time(&self) -> bool {
        false
    }

    /// Forgets what a slot's last claim was, when its listener ends.
    async fn close_lane(&self, at: &Partition, slot: SlotId) -> Result<()>;
}
