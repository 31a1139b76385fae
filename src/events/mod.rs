//! The subscription: hears wake-ups, fences and expired keys.
//!
//! A [`Supervisor`] keeps one [`Session`](session::Session) open to one node,
//! for ever: a session ends for any reason, a gap is reported, and after a
//! capped and jittered wait there is another one. `redis`' own ConnectionManager
//! is not fit for this: it hides gaps, discards errors of its resubscription
//! and gives up after six tries.

mod canary;
mod heard;
mod open;
mod script;
mod session;
mod touching;

use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::log_throttle::LogThrottle;
use crate::error::Result;
use crate::events::event::{Touch, Prefixes};
use crate::wire::names::{DEFAULT_NAMESPACE, Partition};
use crate::events::event::{Gap, Event};
use crate::wire::store::Store;
pub(crate) use heard::Decoder;
#[cfg(any(test, fuzzing))]
pub(crate) use heard::Decoded;
use session::Session;

/// Hints that may wait for the listener. Those beyond are dropped, counted,
/// and made good by a sweep.
const QUEUE: usize = 65_536;
/// RetryDelays between tries to connect, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A session that held this long was a good one, even if no event ever flowed or it broke with an
/// error: the waits start over.
const GOOD: Duration = Duration::from_secs(10);

/// Opens the stream of events about these partitions, and about keys that other programs write.
pub(crate) fn open(
    store: &Store,
    partitions: &[Partition],
    watched: &Prefixes,
    touches: mpsc::Receiver<Touch>,
) -> mpsc::Receiver<Event> {
    let (events, receiver) = mpsc::channel(QUEUE);
    let namespace = partitions.first().map_or(DEFAULT_NAMESPACE, |at| &at.namespace).to_owned();
    let decoder = Decoder::new(&namespace, store.address().db, partitions, watched);
    let supervisor = Supervisor { store: store.clone(), namespace, decoder, events };
    tokio::spawn(supervisor.run(touches));
    receiver
}

struct Supervisor {
    store: Store,
    /// Whose canaries these are.
    namespace: String,
    decoder: Decoder,
    events: mpsc::Sender<Event>,
}

impl Supervisor {
    /// Until nobody listens any more.
    async fn run(self, mut touches: mpsc::Receiver<Touch>) {
        let closed = self.events.clone();
        tokio::select! {
            () = self.keep_open(&mut touches) => {}
            () = closed.closed() => {}
        }
    }

    async fn keep_open(&self, touches: &mut mpsc::Receiver<Touch>) {
        let mut wait = FIRST_WAIT;
        let mut throttle = LogThrottle::default();
        loop {
            let began = tokio::time::Instant::now();
            let ended = self.session(touches).await;
            if began.elapsed() >= GOOD {
                wait = FIRST_WAIT;
                throttle = LogThrottle::default();
            }
            match ended {
                Ok(heard_canary) if heard_canary => {
                    wait = FIRST_WAIT;
                    throttle = LogThrottle::default();
                    info!(server = %self.store.server(), "subscription lost; reconnecting");
                }
                Ok(_) => {}
                Err(_) if self.events.is_closed() => return,
                Err(error) if throttle.should_log(&error) => {
                    warn!(
                        server = %self.store.server(), %error,
                        "no subscription; sweeping every second until it is back"
                    );
                }
                Err(_) => {}
            }
            if self.events.send(Event::Gap(Gap::Disconnected)).await.is_err() {
                return;
            }
            let pause = tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0)));
            if touching::refuse(touches, &self.events, pause).await.is_err() {
                return;
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// One session, to its end; whether it ever was anchored.
    async fn session(&self, touches: &mut mpsc::Receiver<Touch>) -> Result<bool> {
        let opening = Session::open(&self.store, &self.namespace, &self.decoder);
        let mut session = touching::refuse(touches, &self.events, opening).await??;
        session.run(&self.events, touches).await
    }
}
