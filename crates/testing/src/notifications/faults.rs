//! The faults of notifications, and their effect on each message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keylapse_testserver::{MessageCarrier, Passage, PubSubMessage};
use tokio::time::Instant;

use crate::activity::ActivitySignal;
use keylapse_connection::lock::lock;

/// The faults that apply now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) flow: Flow,
    pub(super) delay: Duration,
    /// The extra deliveries of each notification.
    pub(super) duplicates: usize,
    /// Notifications are gathered for this long and then reversed.
    pub(super) window: Duration,
    loss: LossOrder,
}

/// The messages that are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    #[default]
    Everything,
    /// Notifications are lost, other messages arrive.
    CanariesOnly,
    /// All messages are lost.
    Silent,
    /// Connections that subscribe are closed.
    Disconnected,
}

/// An order to lose some notifications. The number lets each connection follow an order once.
#[derive(Clone, Copy, Debug, Default)]
struct LossOrder {
    number: u64,
    left: usize,
}

impl LossOrder {
    /// Returns whether to lose one more notification under the latest order.
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
        self.loss = LossOrder { number: self.loss.number + 1, left: count };
    }

    pub(super) fn heal(&mut self) {
        *self = Self { loss: self.loss, ..Self::default() };
        self.lose_next(0);
    }
}

/// Carries messages under the current faults.
#[derive(Debug, Default)]
pub(super) struct FaultyCarrier {
    faults: Mutex<Faults>,
    /// For each connection, the rest of its loss order, and when the notifications that are being gathered arrive.
    subscribers: Mutex<HashMap<u64, (LossOrder, Option<Instant>)>>,
    activity: Arc<ActivitySignal>,
    pub(super) delivered: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl FaultyCarrier {
    pub(super) fn new(activity: Arc<ActivitySignal>) -> Self {
        Self { activity, ..Self::default() }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults());
        self.activity.record_activity();
    }

    pub(super) fn record_activity(&self) {
        self.activity.record_activity();
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    fn passage(&self, connection: u64, faults: &Faults) -> Passage {
        let mut subscribers = lock(&self.subscribers);
        let (loss, gathered) = subscribers.entry(connection).or_default();
        if faults.flow != Flow::Everything || loss.take_one(faults.loss) {
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
            self.activity.record_activity();
        }
        passage
    }

    fn arrived(&self, message: &PubSubMessage) {
        if is_notification(message) {
            self.delivered.fetch_add(1, Ordering::Relaxed);
            self.activity.record_activity();
        } else {
            self.activity.record_poll();
        }
    }

    fn admits(&self) -> bool {
        self.faults().flow != Flow::Disconnected
    }
}

/// Returns whether listeners act on the message. They do not act on heartbeats, nor on messages for those who tail the
/// journal. Under a subscription to all changes of a key its expiry arrives twice, and counts once.
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
