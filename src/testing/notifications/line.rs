//! The line from a server's subscription to one listener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::events::{Event, Gap};
use crate::rounds::until_due;
use crate::testing::notifications::Shared;
use crate::testing::notifications::faults::{Flow, Losing};

/// Events that may wait for the listener.
pub(super) const QUEUE: usize = 8192;
/// A subscription misses its canary within this, and then again and again.
const MISSED_EVERY: Duration = Duration::from_millis(1500);

/// Takes events from the subscription and passes them on, if, when and as often as the
/// faults of the moment say.
pub(super) struct Line {
    shared: Arc<Shared>,
    events: mpsc::Receiver<Event>,
    listener: mpsc::Sender<Event>,
    /// The flow that the listener knows of.
    flow: Flow,
    /// When it will have missed a canary.
    missed: Option<Instant>,
    losing: Losing,
    /// What is on its way: by time of arrival, then in order.
    on_its_way: BTreeMap<(Instant, i64), Event>,
    /// How many have ever been on their way.
    count: i64,
    /// When those that are being gathered arrive.
    gathered: Option<Instant>,
}

impl Line {
    pub(super) fn new(shared: Arc<Shared>, events: mpsc::Receiver<Event>) -> (Self, mpsc::Receiver<Event>) {
        let (listener, heard) = mpsc::channel(QUEUE);
        let line = Self {
            shared,
            events,
            listener,
            flow: Flow::Everything,
            missed: None,
            losing: Losing::default(),
            on_its_way: BTreeMap::new(),
            count: 0,
            gathered: None,
        };
        (line, heard)
    }

    /// Where something can be put in, as long as the line is there.
    pub(super) fn end(&self) -> mpsc::WeakSender<Event> {
        self.listener.downgrade()
    }

    /// Until the subscription or the listener is gone.
    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        loop {
            // Created before the faults are read: no change after that is missed.
            let changed = shared.changed.notified();
            self.follow().await;
            self.deliver().await;
            let arrival = self.on_its_way.first_key_value().map(|((at, _), _)| *at);
            let next = [arrival, self.missed].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = self.listener.closed() => return,
                () = changed => {}
                () = until_due(next) => {}
                event = self.events.recv() => match event {
                    Some(event) => self.take(&event),
                    None => return,
                },
            }
        }
    }

    /// Tells the listener what its subscription would find out by itself.
    async fn follow(&mut self) {
        let flow = self.shared.faults().flow;
        let now = Instant::now();
        if flow != self.flow {
            let before = std::mem::replace(&mut self.flow, flow);
            self.missed = (flow == Flow::Silent).then(|| now + MISSED_EVERY);
            if flow == Flow::Disconnected {
                self.pass(Event::Gap(Gap::Disconnected)).await;
            } else if flow.carries_canaries() && !before.carries_canaries() {
                self.pass(Event::Anchored).await;
            }
        }
        if self.missed.is_some_and(|at| at <= now) {
            self.missed = Some(now + MISSED_EVERY);
            self.pass(Event::Gap(Gap::Silent)).await;
        }
    }

    /// Puts an event on its way, or loses it.
    fn take(&mut self, event: &Event) {
        let faults = *self.shared.faults();
        let lost = if is_notification(event) {
            faults.flow != Flow::Everything || self.losing.one(&faults)
        } else {
            // News of the stream comes by this line, too.
            !faults.flow.carries_canaries()
        };
        if lost {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            self.shared.pulse.beat();
            return;
        }
        let now = Instant::now();
        let mut at = now;
        if !faults.window.is_zero() {
            at = self.gathered.filter(|at| *at > now).unwrap_or(now + faults.window);
            self.gathered = Some(at);
        }
        for _ in 0..=faults.more {
            self.count += 1;
            let place = if faults.window.is_zero() { self.count } else { -self.count };
            self.on_its_way.insert((at + faults.delay, place), event.clone());
        }
    }

    /// Passes on what has arrived.
    async fn deliver(&mut self) {
        while let Some(entry) = self.on_its_way.first_entry().filter(|entry| entry.key().0 <= Instant::now())
        {
            let event = entry.remove();
            self.shared.heard.fetch_add(u64::from(is_notification(&event)), Ordering::Relaxed);
            self.pass(event).await;
        }
    }

    async fn pass(&self, event: Event) {
        let is_look = matches!(event, Event::Canary(_));
        // Refused by a listener that is gone, which ends the line.
        let _ = self.listener.send(event).await;
        if is_look { self.shared.pulse.look() } else { self.shared.pulse.beat() }
    }
}

/// Whether this is a notification, not a canary or other news of the stream itself.
fn is_notification(event: &Event) -> bool {
    use Event::{Changed, Expired, Fence, Left, Wake};
    matches!(event, Wake { .. } | Left { .. } | Fence { .. } | Expired(_) | Changed(..))
}
