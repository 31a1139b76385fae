//! The faults that tests set and connections apply.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::watch;

/// The fate of the connection after a lost reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Closes the connection. The client detects the lost reply immediately.
    Close,
    /// Keeps the connection open and silent. The client detects this by its own time limit. Later replies do not arrive
    /// either, because the client would take the next one for the lost one.
    Stall,
    /// Closes the connection after this many bytes of the reply, at most all but one.
    Tear(usize),
    /// Keeps the connection open and silent after this many bytes of the reply, at most all but one.
    Halt(usize),
    /// Resets the connection (RST). Bytes that have not arrived are lost in both directions.
    Reset,
}

/// The answer of the proxy to a denied command, which the server does not receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Replies with this error, such as `ERR no`.
    Error(&'static str),
    /// Closes the connection like twemproxy. Unanswered requests get no reply.
    Close,
}

/// The way in which [`Proxy::cut`](super::Proxy::cut) and [`Proxy::reset`](super::Proxy::reset) end connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cut {
    #[default]
    Close,
    Reset,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Requests,
    /// From server to client.
    Replies,
    /// Both ways.
    Both,
}

impl Direction {
    fn includes(self, one: Self) -> bool {
        self == Self::Both || self == one
    }
}

/// The delays and stalls of one direction of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weather {
    pub(super) is_stalled: bool,
    pub(super) delay: Duration,
    /// The bytes of each write, or `None` to write all bytes together.
    pub(super) chunk: Option<NonZeroUsize>,
}

type Predicate = Box<dyn Fn(&[Bytes]) -> bool + Send>;

struct Loss {
    left: usize,
    matches: Predicate,
    then: Then,
}

/// The fault that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server executes the request, and the client does not receive the reply.
    Lost(Then),
    Denied(Denial),
}

pub(super) struct Faults {
    denials: Mutex<Vec<(Predicate, Denial)>>,
    losses: Mutex<Vec<Loss>>,
    pub(super) lost: watch::Sender<usize>,
    /// If true, new connections carry only replies, and no messages.
    pub(super) hushed: AtomicBool,
    /// A connection closes after this many bytes of replies.
    pub(super) torn_after: AtomicUsize,
    pub(super) requests: watch::Sender<Weather>,
    pub(super) replies: watch::Sender<Weather>,
    /// A change ends all current connections.
    pub(super) cuts: watch::Sender<Cut>,
}

impl Faults {
    pub(super) fn none() -> Self {
        Self {
            denials: Mutex::default(),
            losses: Mutex::default(),
            lost: watch::Sender::new(0),
            hushed: AtomicBool::new(false),
            torn_after: AtomicUsize::new(usize::MAX),
            requests: watch::Sender::new(Weather::default()),
            replies: watch::Sender::new(Weather::default()),
            cuts: watch::Sender::new(Cut::Close),
        }
    }

    pub(super) fn lose(&self, left: usize, matches: Predicate, then: Then) {
        self.losses().push(Loss { left, matches, then });
    }

    pub(super) fn deny(&self, matches: Predicate, denial: Denial) {
        self.denials().push((matches, denial));
    }

    /// Returns the fault for this request. A loss reduces the count of its rule.
    pub(super) fn judge(&self, words: &[Bytes]) -> Option<Fault> {
        let denied = self.denials().iter().find(|(matches, _)| matches(words)).map(|(_, denial)| *denial);
        denied.map(Fault::Denied).or_else(|| self.loses(words).map(Fault::Lost))
    }

    fn loses(&self, words: &[Bytes]) -> Option<Then> {
        let mut losses = self.losses();
        let loss = losses.iter_mut().find(|loss| loss.left > 0 && (loss.matches)(words))?;
        loss.left -= 1;
        let then = loss.then;
        losses.retain(|loss| loss.left > 0);
        Some(then)
    }

    pub(super) fn forget(&self) {
        self.losses().clear();
        self.denials().clear();
    }

    pub(super) fn change(&self, direction: Direction, change: impl Fn(&mut Weather)) {
        if direction.includes(Direction::Requests) {
            self.requests.send_modify(&change);
        }
        if direction.includes(Direction::Replies) {
            self.replies.send_modify(&change);
        }
    }

    /// A poisoned lock is usable, because a panic of a test's predicate leaves the rules complete.
    fn losses(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn denials(&self) -> MutexGuard<'_, Vec<(Predicate, Denial)>> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("losses", &self.losses().len()).finish_non_exhaustive()
    }
}

/// Returns a predicate that matches requests by the name of the command, in upper or lower case: `command("EVALSHA")`.
pub fn command(name: &str) -> impl Fn(&[Bytes]) -> bool + Send + use<> {
    let name = name.to_owned();
    move |words| words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Matches each request, including the handshake of a client.
pub fn any(_: &[Bytes]) -> bool {
    true
}
