//! The subscription: hears wake-ups, fences and expired keys.
//!
//! A [`Supervisor`] keeps one [`Session`](session::Session) open to one node,
//! for ever: a session ends for any reason, a gap is reported, and after a
//! capped and jittered wait there is another one. `redis`' own ConnectionManager
//! is not fit for this: it hides gaps, discards errors of its resubscription
//! and gives up after six tries.

mod calls;
mod chain;
pub(crate) mod decoder;
#[cfg(feature = "console")]
mod earshot;
pub mod event;
mod naming;
mod open;
mod prompts;
mod session;
mod share;
#[cfg(any(test, feature = "console", feature = "testing"))]
pub(crate) mod tail;

#[cfg(any(test, fuzzing))]
pub(crate) use self::decoder::Decoded;
pub(crate) use self::decoder::Decoder;
#[cfg(feature = "console")]
pub(crate) use self::earshot::{Earshot, Voice};
pub(crate) use self::event::{Answer, Canary, Change, Event, Gap, Question, Touch, Touched};
pub(crate) use self::prompts::{Prompt, Prompts};
pub(crate) use self::share::Share;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::unconstrained;

use crate::connection::{Address, Place};
use crate::error::{Error, Result};
use crate::events::session::Session;
use crate::log::{info, warn};
use crate::log_throttle::LogThrottle;
use crate::rounds::Rounds;
use crate::wire::NodeId;

/// Events that may wait for the listener. Beyond, the session waits.
const QUEUE: usize = 4096;
/// Waits between tries to connect, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A session that held this long was a good one, even if no event ever flowed or it broke with an
/// error: the waits start over.
const GOOD: Duration = Duration::from_secs(10);

/// So many tries in a row without a connection, though calls are answered, are worth a line in the log.
const IN_VAIN: usize = 3;

/// Touches that may wait for the connection.
const TOUCHES: usize = 1024;

/// A stream of events in which touches are answered.
#[derive(Debug)]
pub(crate) struct EventStream {
    /// What is heard.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Where touches are asked for; those that find no connection are answered with nothing.
    pub(crate) touches: mpsc::Sender<Touch>,
}

/// What is listened to.
#[derive(Clone)]
pub(crate) struct Source {
    /// Where the server is found.
    pub(crate) place: Place,
    /// Whether its keys may be another's at another time.
    pub(crate) among: Among,
    /// Whether it may give slots away.
    pub(crate) slots_move: bool,
    /// What of its events is understood.
    pub(crate) decoder: Decoder,
    /// What it has of the work.
    pub(crate) share: watch::Receiver<Share>,
    /// Where keys are gathered that were heard to be written.
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) rounds: Rounds,
}

impl Source {
    /// The stream of its events, and what has to run for it. It lives until the receiver is dropped, and reconnects by
    /// itself.
    pub(crate) fn open(self) -> (EventStream, impl Future<Output = ()> + Send + use<>) {
        let (events, receiver) = mpsc::channel(QUEUE);
        let (touches, asked) = mpsc::channel(TOUCHES);
        let supervisor = Supervisor { source: self, events };
        (EventStream { events: receiver, touches }, supervisor.run(asked))
    }

    /// Whether it is one of several that have keys at the same time.
    fn is_of_several(&self) -> bool {
        matches!(self.among, Among::Nodes(_))
    }

    /// Whether another may take its place.
    fn may_be_replaced(&self) -> bool {
        self.among != Among::Alone
    }
}

/// The servers among which a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// There are no others; or nobody asks for positions in its stream.
    Alone,
    /// Nodes of a cluster, of which it has this name.
    Nodes(NodeId),
    /// Those of which sentinels name one at a time.
    Successors,
}

struct Supervisor {
    source: Source,
    events: mpsc::Sender<Event>,
}

impl Supervisor {
    /// Until nobody listens any more.
    async fn run(self, touches: mpsc::Receiver<Touch>) {
        tokio::select! {
            biased;
            () = self.events.closed() => {}
            () = self.keep_open(touches) => {}
        }
    }

    async fn keep_open(&self, mut touches: mpsc::Receiver<Touch>) {
        let (mut wait, mut throttle, mut in_vain) = (FIRST_WAIT, LogThrottle::default(), 0);
        loop {
            let began = tokio::time::Instant::now();
            let ended = self.session(&mut touches).await;
            if matches!(ended, Ok(true)) || began.elapsed() >= GOOD {
                (wait, throttle, in_vain) = (FIRST_WAIT, LogThrottle::default(), 0);
            }
            in_vain += usize::from(ended.is_err());
            match ended {
                Ok(true) => info!(server = %self.server(), "subscription lost; reconnecting"),
                Err(error) if self.is_news(&error, in_vain) && throttle.is_new(&error) => warn!(
                    server = %self.server(), %error,
                    "no subscription; sweeping every second until it is back"
                ),
                Ok(false) | Err(_) => {}
            }
            self.pass(Event::Gap(Gap::Disconnected)).await;
            let pause = tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0)));
            self.without_touches(&mut touches, pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Whether it is the subscription's own trouble. Where the server is lost, calls find that out as soon,
    /// and it is said already.
    fn is_news(&self, error: &Error, in_vain: usize) -> bool {
        !error.is_of_the_line() || in_vain >= IN_VAIN && !self.source.place.outage().is_lost()
    }

    /// Where it is at present, for the log.
    fn server(&self) -> Address {
        self.source.place.present()
    }

    /// One session, to its end; whether it ever was anchored.
    async fn session(&self, touches: &mut mpsc::Receiver<Touch>) -> Result<bool> {
        let opening = Session::open(self);
        let session = self.without_touches(touches, opening).await?;
        // In a flood it takes what there is, up to what the listener has room for; else the connection, which takes
        // what comes by thousands, would be ahead of it without end.
        unconstrained(session.run(touches)).await
    }

    /// Waits for something while there is no connection, and answers each touch by that.
    async fn without_touches<T>(
        &self,
        touches: &mut mpsc::Receiver<Touch>,
        until: impl Future<Output = T>,
    ) -> T {
        let mut until = pin!(until);
        loop {
            tokio::select! {
                biased;
                done = &mut until => return done,
                Some(asked) = touches.recv() => {
                    self.pass(Event::Touched(asked.unanswered())).await;
                }
            }
        }
    }

    /// Tells the listener; with nobody there, all of this ends.
    async fn pass(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
