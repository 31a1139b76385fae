//! A store whose notifications can be tampered with.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::testing::notifications::Notifications;
use crate::testing::pulse::Pulse;
use crate::error::Result;
use crate::id::{ArmingId, SlotId};
use crate::wire::names::Partition;
use crate::wire::types::{AckReply, Arm, ArmReply, Cancel, CancelReply, Claim, Claimed, Durability, Heads, Held, Letters, Look, RawLetter, Reached, ReplayReply, RescheduleReply, Settle, SettleReply, Stamped, RepairStep, Repaired, TopicEntry, Trigger, TriggerReply};
use crate::events::event::Event;
use crate::wire::Store;
use crate::time::WireWhen;

/// A store, and [`Notifications`] between it and its listeners.
///
/// A [`TestBed`](super::TestBed) has one in memory. Around a
/// [`Store`](crate::wire::store::Store) it breaks the notifications of a real
/// server, in real time:
///
/// ```no_run
/// use keylapse::testing::FaultyStore;
/// use keylapse::{Listener, store::Store};
///
/// # fn example() -> keylapse::Result<()> {
/// let store = FaultyStore::new(Store::new("redis://127.0.0.1/")?);
/// let builder = Listener::builder_on(store.clone());
/// store.notifications().lose();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    inner: S,
    notifications: Notifications,
    pulse: Arc<Pulse>,
    #[cfg(test)]
    calls: super::Calls,
}

impl<S: Store> FaultyStore<S> {
    /// A store without faults, yet.
    pub fn new(inner: S) -> Self {
        Self::with_pulse(inner, Arc::default())
    }

    pub(super) fn with_pulse(inner: S, pulse: Arc<Pulse>) -> Self {
        Self {
            inner,
            notifications: Notifications::new(pulse.clone()),
            pulse,
            #[cfg(test)]
            calls: super::Calls::default(),
        }
    }

    /// The store without its faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// What happens to its notifications.
    pub fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Which calls are made, and which of them fail.
    #[cfg(test)]
    pub(crate) fn calls(&self) -> &super::Calls {
        &self.calls
    }
}

/// Each call is the inner store's.
macro_rules! passed_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl<S: Store> Store for FaultyStore<S> {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer> {
                #[cfg(test)]
                let fault = self.calls.before(stringify!($name))?;
                let answer = self.inner.$name($($arg),*).await;
                self.pulse.beat();
                #[cfg(test)]
                let answer = super::calls::heard(fault, answer);
                answer
            })*

            fn events(&self, partitions: &[Partition]) -> mpsc::Receiver<Event> {
                self.notifications.connect(self.inner.events(partitions))
            }

            fn virtual_time(&self) -> bool {
                self.inner.virtual_time()
            }
        }
    };
}

passed_on! {
    arm(at: &Partition, call: Arm<'_>) -> Stamped<Vec<ArmReply>>;
    arm_durably(at: &Partition, call: Arm<'_>, ask: Durability) -> (Stamped<Vec<ArmReply>>, Reached);
    cancel(at: &Partition, timers: &[Cancel], repeat: bool) -> Vec<CancelReply>;
    reschedule(at: &Partition, key: &[u8], when: WireWhen) -> RescheduleReply;
    look(at: &Partition, key: &[u8]) -> Option<Look>;
    claim(at: &Partition, call: Claim) -> Claimed;
    ack(at: &Partition, held: &[Held]) -> Stamped<AckReply>;
    settle(at: &Partition, letters: Letters, ends: &[Settle]) -> Vec<SettleReply>;
    renew(at: &Partition, lease_ms: u64, held: &[Held]) -> Vec<usize>;
    peek(partitions: &[Partition]) -> Stamped<Vec<Heads>>;
    pause(at: &Partition, reason: Option<&str>) -> Option<String>;
    letters(at: &Partition, skip: usize, count: usize) -> Vec<RawLetter>;
    letter_counts(at: &Partition) -> (u64, u64);
    replay(at: &Partition, letter: &[u8], arming: ArmingId) -> ReplayReply;
    drop_letter(at: &Partition, letter: &[u8]) -> bool;
    tidy(at: &Partition, step: RepairStep) -> Repaired;
    set_triggers(triggers: &[Trigger]) -> Vec<TriggerReply>;
    drop_trigger(key: &[u8], deadline: u64) -> bool;
    touch(keys: &[Bytes]) -> ();
    register(topic: &TopicEntry, partitions: &[Partition]) -> ();
    check_settings(manage_notifications: bool) -> ();
    close_lane(at: &Partition, lane: SlotId) -> ();
}
