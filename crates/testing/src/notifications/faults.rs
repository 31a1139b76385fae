//! The faults of a stream, and what they do to a message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keylapse_testserver::{MessageCarrier, Passage, PubSubMessage};
use tokio::time::Instant;

use crate::activity::ActivitySignal;
use keylapse_connection::lock::lock;

/// What is wrong with the stream at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) flow: Flow,
    /// How much later everything arrives.
    pub(super) delay: Duration,
    /// How many more times.
    pub(super) duplicates: usize,
    /// For how long notifications are gathered, to be turned around.
    pub(super) window: Duration,
    losing: LossOrder,
}

/// What gets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    #[default]
    Everything,
    /// Canaries alone.
    CanariesOnly,
    /// Nothing.
    Silent,
    /// Nothing, and it shows.
    Disconnected,
}

/// An order to lose a few. Each connection obeys it once, so it has a number.
#[derive(Clone, Copy, Debug, Default)]
struct LossOrder {
    number: u64,
    left: usize,
}

impl LossOrder {
    /// Whether to lose one more, by the latest order.
    fn take_one(&mut self, order: Self) -> bool {
        if self.number != order.number {
            *self = order;
        }
        let lost = self.left > 0;
        self.left = self.left.saturating_sub(1);
        lost
    }
}

impl Faults {
    pub(super) fn lose_next(&mut self, count: usize) {
        self.losing = LossOrder { number: self.losing.number + 1, left: count };
    }

    pub(super) fn heal(&mut self) {
        *self = Self { losing: self.losing, ..Self::default() };
        self.lose_next(0);
    }
}

/// Carries messages as the faults of the moment say.
#[derive(Debug, Default)]
pub(super) struct FaultyCarrier {
    faults: Mutex<Faults>,
    /// By connection: of the order to lose some what is left, and when those arrive that are being gathered.
    subscribers: Mutex<HashMap<u64, (LossOrder, Option<Instant>)>>,
    pulse: Arc<ActivitySignal>,
    pub(super) delivered: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl FaultyCarrier {
    pub(super) fn new(pulse: Arc<ActivitySignal>) -> Self {
        Self { pulse, ..Self::default() }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults());
        self.pulse.record_activity();
    }

    pub(super) fn record_activity(&self) {
        self.pulse.record_activity();
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    fn passage(&self, connection: u64, faults: &Faults) -> Passage {
        let mut subscribers = lock(&self.subscribers);
        let (losing, gathered) = subscribers.entry(connection).or_default();
        if faults.flow != Flow::Everything || losing.take_one(faults.losing) {
            return Passage::NONE;
        }
        let (times, overtakes, mut late) = (1 + faults.duplicates, !faults.window.is_zero(), faults.delay);
        if overtakes {
            let now = Instant::now();
            let at = gathered.filter(|at| *at > now).unwrap_or(now + faults.window);
            *gathered = Some(at);
            late += at - now;
        }
        Passage { times, late, overtakes }
    }
}

impl MessageCarrier for FaultyCarrier {
    fn take(&self, message: &PubSubMessage) -> Passage {
        let (faults, is_notification) = (*self.faults(), is_notification(message));
        let passage = match faults.flow {
            _ if is_notification => self.passage(message.connection, &faults),
            Flow::Everything | Flow::CanariesOnly => Passage::DIRECT,
            Flow::Silent | Flow::Disconnected => Passage::NONE,
        };
        if passage.times == 0 {
            self.lost.fetch_add(u64::from(is_notification), Ordering::Relaxed);
            self.pulse.record_activity();
        }
        passage
    }

    fn arrived(&self, message: &PubSubMessage) {
        if is_notification(message) {
            self.delivered.fetch_add(1, Ordering::Relaxed);
            self.pulse.record_activity();
        } else {
            self.pulse.record_poll();
        }
    }

    fn admits(&self) -> bool {
        self.faults().flow != Flow::Disconnected
    }
}

/// Whether listeners act on it: not what proves that events flow, nor what only those hear who look on. That a key has
/// expired is told twice where each change of a key is heard, and counts once.
fn is_notification(message: &PubSubMessage) -> bool {
    let PubSubMessage { channel, payload, .. } = message;
    if channel.ends_with(b":wake") {
        return matches!(payload.first(), Some(b'w' | b'q' | b'l' | b'f' | b'o'));
    }
    match channel.starts_with(b"__keyspace@") {
        true => !is_canary(channel) && payload != "expired",
        false => channel.starts_with(b"__keyevent@") && !is_canary(payload),
    }
}

fn is_canary(name: &[u8]) -> bool {
    name.windows(11).any(|part| part == b"{heartbeat/")
}
