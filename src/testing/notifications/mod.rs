//! The stream of notifications, and what a test does to it.

mod faults;
mod line;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::client::Client;
use crate::events::Event;
use crate::lock::lock;
use crate::testing::hooks::Hooks;
use crate::testing::notifications::faults::{Faults, Flow};
use crate::testing::notifications::line::{Line, QUEUE};
use crate::testing::pulse::Pulse;
use crate::time::MAX_DELAY;

/// What happens to notifications between a server and its listeners: nothing, at
/// first. Clones are one and the same.
///
/// Notifications are wake-ups (a new timer is the next to be due), fences (a
/// running attempt was cancelled) and expired keys. Faults add up until
/// [`heal`](Self::heal), and hit every listener alike:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// # use std::time::Duration;
/// # let bed = keylapse::testing::TestBed::new();
/// bed.notifications().delay(Duration::from_secs(2)).duplicate(3); // late, and four of each
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Notifications(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    faults: Mutex<Faults>,
    changed: Notify,
    pulse: Arc<Pulse>,
    lines: Mutex<Vec<mpsc::WeakSender<Event>>>,
    heard: AtomicU64,
    lost: AtomicU64,
}

impl Notifications {
    /// The same client, with notifications that can be broken between the server and the listeners that use
    /// it: of any server, in real time. A [`TestBed`](super::TestBed) has its own.
    ///
    /// ```no_run
    /// use keylapse::testing::Notifications;
    /// use keylapse::{Client, Listener};
    ///
    /// # fn example() -> keylapse::Result<()> {
    /// let (client, notifications) = Notifications::of(Client::new("redis://127.0.0.1/")?);
    /// let builder = Listener::builder(client);
    /// notifications.lose();
    /// # Ok(()) }
    /// ```
    pub fn of(client: Client) -> (Client, Self) {
        let notifications = Self::new(Arc::default());
        let hooks = Hooks { notifications: Some(notifications.clone()), ..Hooks::default() };
        (client.with_hooks(hooks), notifications)
    }

    pub(super) fn new(pulse: Arc<Pulse>) -> Self {
        Self(Arc::new(Shared {
            faults: Mutex::default(),
            changed: Notify::new(),
            pulse,
            lines: Mutex::default(),
            heard: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }))
    }

    /// From now on every notification is lost, and nobody notices: canaries are
    /// heard. What was armed meanwhile is found by a sweep, within 5 s.
    pub fn lose(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Losing)
    }

    /// The next `count` notifications are lost, to each listener.
    pub fn lose_next(&self, count: usize) -> &Self {
        self.change(|faults| faults.lose_next(count))
    }

    /// Nothing is heard, canaries neither, as with cleared flags: listeners notice
    /// within 1.5 s, and sweep every second.
    pub fn silence(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Silent)
    }

    /// The subscription is gone, and listeners know it at once.
    pub fn disconnect(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Disconnected)
    }

    /// Notifications arrive this much later.
    pub fn delay(&self, by: Duration) -> &Self {
        self.change(|faults| faults.delay = by.min(MAX_DELAY))
    }

    /// Notifications arrive this many more times, at most 8,192.
    pub fn duplicate(&self, more: usize) -> &Self {
        self.change(|faults| faults.more = more.min(QUEUE))
    }

    /// Notifications are gathered for this long, then arrive in reverse order.
    pub fn reorder(&self, window: Duration) -> &Self {
        self.change(|faults| faults.window = window.min(MAX_DELAY))
    }

    /// No more faults. Listeners hear a canary; what was lost stays lost, and what
    /// was put off is still on its way.
    pub fn heal(&self) -> &Self {
        self.change(Faults::heal)
    }

    /// Announces this key as expired, whether it is or not: anybody can PUBLISH.
    /// Faults do not apply.
    pub fn forge(&self, key: impl AsRef<[u8]>) -> &Self {
        let event = Event::Expired(Bytes::copy_from_slice(key.as_ref()));
        let mut lines = lock(&self.0.lines);
        lines.retain(|line| line.strong_count() > 0);
        for line in lines.iter().filter_map(mpsc::WeakSender::upgrade) {
            // A full queue has more than enough to be looked at.
            let _ = line.try_send(event.clone());
        }
        self
    }

    /// How many notifications were delivered, over all listeners; duplicates count.
    pub fn heard(&self) -> u64 {
        self.0.heard.load(Ordering::Relaxed)
    }

    /// How many were lost, over all listeners.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// A line from a store's events to one listener.
    pub(super) fn connect(&self, events: mpsc::Receiver<Event>) -> mpsc::Receiver<Event> {
        let (line, heard) = Line::new(self.0.clone(), events);
        lock(&self.0.lines).push(line.end());
        tokio::spawn(line.run());
        heard
    }

    /// Whether nothing is lost at the moment.
    pub(crate) fn carries_all(&self) -> bool {
        self.0.faults().flow == Flow::Everything
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) -> &Self {
        change(&mut self.0.faults());
        self.0.changed.notify_waiters();
        self
    }
}

impl Shared {
    fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        lock(&self.faults)
    }
}
