//! What is to go wrong: rules that tests set and connections obey.

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

/// What becomes of the connection when a reply is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is closed: the client knows at once that it does not know.
    Close,
    /// It stays open and silent: the client learns by its own time limit. No later reply arrives
    /// either, since it would be taken for the lost one.
    Stall,
    /// It is closed in the middle of the reply: this many of its bytes arrive, at most all but one.
    Tear(usize),
    /// It stays open and silent in the middle of the reply.
    Halt(usize),
    /// It is reset (RST): what is under way in either direction is thrown away.
    Reset,
}

/// The fate of a command that a proxy does not let through: the server does not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It is answered by this error, as `ERR no`.
    Error(&'static str),
    /// The connection is closed, with whatever is not answered yet: as twemproxy does.
    Close,
}

/// How [`Proxy::cut`](super::Proxy::cut) and [`Proxy::reset`](super::Proxy::reset) end connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cut {
    #[default]
    Close,
    Reset,
}

/// Which way bytes go.
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

/// How one direction of all connections behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weather {
    pub(super) is_stalled: bool,
    pub(super) delay: Duration,
    /// How many bytes are written at a time; all there are, if none.
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
    /// The server executes it, and the client does not hear of it.
    Lost(Then),
    Denied(Denial),
}

pub(super) struct Faults {
    denials: Mutex<Vec<(Predicate, Denial)>>,
    losses: Mutex<Vec<Loss>>,
    pub(super) lost: watch::Sender<usize>,
    /// Whether connections that begin now carry answers alone.
    pub(super) hushed: AtomicBool,
    /// How many bytes of replies a connection carries until it is closed.
    pub(super) torn_after: AtomicUsize,
    pub(super) requests: watch::Sender<Weather>,
    pub(super) replies: watch::Sender<Weather>,
    /// Changes when all connections of that moment are to end.
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

    /// Returns the fault that this request meets; each loss uses up one of its rule.
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

    /// A test's predicate may panic; the rules are whole all the same.
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

/// Matches requests by the command's name, in any case: `command("EVALSHA")`.
pub fn command(name: &str) -> impl Fn(&[Bytes]) -> bool + Send + use<> {
    let name = name.to_owned();
    move |words| words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Matches every request, also those by which a client introduces itself.
pub fn any(_: &[Bytes]) -> bool {
    true
}
