//! Timers kept in memory, for tests.

mod afterlife;
mod arm;
mod cancel;
mod claim;
mod clock;
mod stream;
mod expiry;
mod fields;
mod grave;
mod index;
mod ledger;
mod letters;
mod pause;
mod raw;
mod renew;
mod reschedule;
mod settle;
mod tidy;
mod triggers;
mod turn;
mod world;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

pub use self::clock::Clock;
use crate::wire::memory::turn::Turn;
use crate::wire::memory::world::World;
use crate::wire::names::Partition;
use crate::wire::types::{AckReply, Arm, ArmReply, Cancel, CancelReply, Claim, Claimed, Durability, Heads, Held, Letters, Look, RawLetter, Reached, ReplayReply, RescheduleReply, Settle, SettleReply, Stamped, RepairStep, Repaired, TopicEntry, Trigger, TriggerReply};
use crate::events::event::Event;
use crate::wire::Store;
use crate::error::Result;
use crate::id::{ArmingId, SlotId};
use crate::time::WireWhen;

/// Timers kept in memory: for tests, without a server.
///
/// It does what [`Store`](super::Store) does, down to the bytes of
/// records and dead letters and the order of timers within a millisecond; one
/// conformance suite holds both to it. What it keeps is gone with its last
/// clone.
///
/// To test handlers, the test bed of `keylapse::testing` (feature `testing`) has one
/// inside, and can do more. Trigger keys expire when they are touched after their
/// deadline, or about 100 ms later by themselves.
///
/// Its clock is tokio's, so a test with a paused clock drives days in a
/// moment. Here a handler fails until its last attempt, more than a day later:
///
/// ```
/// use std::time::Duration;
///
/// use keylapse::internals::MemoryStore;
/// use keylapse::{Backoff, Done, Failure, Lapse, Listener, Schedule, Topic};
/// use tokio::sync::mpsc;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> keylapse::Result<()> {
/// let store = MemoryStore::new();
/// let notices = Topic::<String>::new("notice:{id}")?.retry(Backoff::payment_notice());
///
/// let schedule = Schedule::on_store(store.clone());
/// schedule.arm(&notices, ["42"], Duration::from_secs(60), &"https://…".to_owned()).await?;
///
/// let (attempts, mut seen) = mpsc::unbounded_channel();
/// let notify = move |lapse: Lapse<String>| {
///     let attempts = attempts.clone();
///     async move {
///         attempts.send(lapse.attempt())?;
///         if lapse.is_last_attempt() { Ok(Done) } else { Err(Failure::retry("nobody answers")) }
///     }
/// };
/// let began = tokio::time::Instant::now();
/// let the_last = async { while seen.recv().await != Some(16) {} };
/// Listener::builder_on(store).on(notices, notify).build()?.run_until(the_last).await?;
///
/// assert!(began.elapsed() > Duration::from_secs(24 * 3600));
/// # Ok(()) }
/// ```
///
/// To call the store itself at moments of the test's own, give it a
/// [manual clock](Clock::manual).
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    clock: Clock,
    world: Mutex<World>,
}

impl Inner {
    fn world(&self) -> MutexGuard<'_, World> {
        // A panic in a test must not hide behind a second one.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads trigger keys; those whose time has come expire by it.
    fn touch(&self, touched: &[Bytes]) {
        let now = self.clock.now().ms();
        self.world().triggering(|keys| touched.iter().for_each(|key| drop(keys.get(now, key))));
    }
}

impl MemoryStore {
    /// An empty store that follows tokio's clock, starting with the present
    /// time.
    pub fn new() -> Self {
        Self::with_clock(Clock::tokio(SystemTime::now()))
    }

    /// An empty store with another clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, world: Mutex::default() }))
    }

    /// How many timers there are: waiting, running or suspect, not the dead.
    pub fn timers(&self) -> usize {
        self.world().timers()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world()
    }

    fn call<T>(&self, at: &Partition, call: impl FnOnce(&mut Turn<'_>) -> T) -> Result<T> {
        let mut world = self.world();
        // Read under the lock: no call is stamped before one that came earlier.
        let now = self.0.clock.now();
        world.call(at, now, call)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what is kept: payloads may be secrets.
        f.debug_struct("MemoryStore").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn arm(&self, at: &Partition, call: Arm<'_>) -> Result<Stamped<Vec<ArmReply>>> {
        self.call(at, |turn| turn.arm(call).map(|value| Stamped { stamp: turn.stamp, value }))?
    }

    /// There is no replica and no disk.
    async fn arm_durably(
        &self,
        at: &Partition,
        call: Arm<'_>,
        _ask: Durability,
    ) -> Result<(Stamped<Vec<ArmReply>>, Reached)> {
        Ok((self.arm(at, call).await?, Reached { replicas: 0, local_fsync: false }))
    }

    async fn cancel(&self, at: &Partition, timers: &[Cancel], repeat: bool) -> Result<Vec<CancelReply>> {
        self.call(at, |turn| turn.cancel(timers, repeat))
    }

    async fn reschedule(&self, at: &Partition, key: &[u8], when: WireWhen) -> Result<RescheduleReply> {
        self.call(at, |turn| turn.reschedule(key, when))?
    }

    async fn look(&self, at: &Partition, key: &[u8]) -> Result<Option<Look>> {
        self.call(at, |turn| turn.look(key))
    }

    async fn claim(&self, at: &Partition, call: Claim) -> Result<Claimed> {
        self.call(at, |turn| turn.claim(call))
    }

    async fn ack(&self, at: &Partition, held: &[Held]) -> Result<Stamped<AckReply>> {
        self.call(at, |turn| Stamped { stamp: turn.stamp, value: turn.ack(held) })
    }

    async fn settle(&self, at: &Partition, letters: Letters, ends: &[Settle]) -> Result<Vec<SettleReply>> {
        self.call(at, |turn| turn.settle(letters, ends))
    }

    async fn renew(&self, at: &Partition, lease_ms: u64, held: &[Held]) -> Result<Vec<usize>> {
        self.call(at, |turn| turn.renew(lease_ms, held))
    }

    async fn peek(&self, partitions: &[Partition]) -> Result<Stamped<Vec<Heads>>> {
        let mut world = self.world();
        let heads = |at| world.ledger(at).map(|ledger| ledger.heads()).unwrap_or_default();
        let value = partitions.iter().map(heads).collect();
        Ok(Stamped { stamp: self.0.clock.now(), value })
    }

    async fn pause(&self, at: &Partition, reason: Option<&str>) -> Result<Option<String>> {
        self.call(at, |turn| turn.pause(reason))
    }

    async fn letters(&self, at: &Partition, skip: usize, count: usize) -> Result<Vec<RawLetter>> {
        Ok(self.world().ledger(at).map(|ledger| ledger.letters(skip, count)).unwrap_or_default())
    }

    async fn letter_counts(&self, at: &Partition) -> Result<(u64, u64)> {
        let counts = self.world().ledger(at).map(|ledger| (ledger.dead.len() as u64, ledger.trimmed));
        Ok(counts.unwrap_or_default())
    }

    async fn replay(&self, at: &Partition, letter: &[u8], arming: ArmingId) -> Result<ReplayReply> {
        self.call(at, |turn| turn.replay(letter, arming))
    }

    async fn drop_letter(&self, at: &Partition, letter: &[u8]) -> Result<bool> {
        Ok(self.world().ledger(at).is_some_and(|ledger| ledger.drop_letter(letter)))
    }

    async fn tidy(&self, at: &Partition, step: RepairStep) -> Result<Repaired> {
        self.call(at, |turn| turn.tidy(&step))
    }

    async fn set_triggers(&self, triggers: &[Trigger]) -> Result<Vec<TriggerReply>> {
        let now = self.0.clock.now().ms();
        let set =
            |keys: &mut triggers::Triggers| triggers.iter().map(|trigger| keys.set(now, trigger)).collect();
        let replies = self.world().triggering(set);
        expiry::expire(&self.0, triggers);
        Ok(replies)
    }

    async fn drop_trigger(&self, key: &[u8], deadline: u64) -> Result<bool> {
        let now = self.0.clock.now().ms();
        Ok(self.world().triggering(|keys| keys.drop_of(now, key, deadline)))
    }

    async fn touch(&self, touched: &[Bytes]) -> Result<()> {
        self.0.touch(touched);
        Ok(())
    }

    /// There are no others who could find the topic.
    async fn register(&self, _topic: &TopicEntry, partitions: &[Partition]) -> Result<()> {
        let mut world = self.world();
        partitions.iter().try_for_each(|at| world.agree(at).map(drop))
    }

    fn events(&self, partitions: &[Partition]) -> mpsc::Receiver<Event> {
        self.world().stream.open(partitions)
    }

    fn virtual_time(&self) -> bool {
        self.0.clock.is_tokio()
    }

    async fn close_lane(&self, at: &Partition, slot: SlotId) -> Result<()> {
        if let Some(ledger) = self.world().ledger(at) {
            ledger.slots.remove(&slot);
        }
        Ok(())
    }
}
