//! The one way to the timers in Redis: scripts and commands on a server, as methods.
//!
//! Every call that names a partition can be repeated after its answer was lost: the caller says that it
//! repeats, and gets the answer of the first execution, or of this one if there was none. First tries pay
//! nothing for that.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::connection::{Endpoint, Home, Target, Topology};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::log::warn;
use crate::log_throttle::LogThrottle;
use crate::settings::Settings;
use crate::{JournalBounds, PartitionNames, Reply, TopicEntry};

/// The longest a call may take to be answered, unless set otherwise. `redis`' own
/// default of 0.5 s would give up on calls that the server still executes.
pub const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Timers kept in Redis or Valkey.
///
/// Connects when it is first used, and again whenever a connection is lost.
/// Each clone shares the connection.
#[derive(Clone)]
pub struct Store(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) topology: Topology,
    target: Target,
    /// Whether it was said lately that listeners cannot be told.
    pub(super) untold: LogThrottle,
    /// The topics that were registered, to list them anew when they were destroyed.
    pub(super) registered: Mutex<HashMap<String, TopicEntry>>,
    /// The partitions of a listener's topics that are known to be there.
    pub(super) made: Mutex<HashMap<String, Made>>,
    /// Which of them keep a journal.
    pub(super) journals: Mutex<HashMap<String, JournalBounds>>,
    /// The servers' settings, as they were seen last.
    pub(super) settings: Mutex<HashMap<Endpoint, Settings>>,
    /// The scripts, made to read the time from a key: for tests on a real server.
    pub(super) clocked: HashMap<&'static str, crate::scripts::Script>,
}

/// The partitions of a topic that are known to be there.
#[derive(Default)]
pub(super) struct Made {
    partitions: HashSet<u32>,
    /// Limits the warning that one was gone.
    gone: LogThrottle,
}

impl Inner {
    fn new(target: Target, answer_within: Duration) -> Self {
        Self {
            topology: Topology::new(&target, answer_within),
            target,
            untold: LogThrottle::default(),
            registered: Mutex::default(),
            made: Mutex::default(),
            journals: Mutex::default(),
            settings: Mutex::default(),
            clocked: HashMap::new(),
        }
    }
}

impl Store {
    /// Of the servers that a URL or a program has named.
    pub fn new(target: &Target, answer_within: Duration) -> Self {
        Self(Arc::new(Inner::new(target.clone(), answer_within)))
    }

    /// The same at a URL, for tests of the scripts.
    pub fn at(url: &str) -> Result<Self> {
        Ok(Self::new(&Target::parse(url)?, DEFAULT_ANSWER_WITHIN))
    }

    /// The same whose scripts read the time, in microseconds, from this key, so that a real server can be
    /// driven through hours.
    #[must_use]
    pub fn with_clock_key(self, key: &str) -> Self {
        let read = format!(
            "(function() local t = tonumber(redis.call('GET', '{key}')) return {{ math.floor(t / 1e6), t % 1e6 }} end)()"
        );
        let clocked = crate::scripts::all()
            .map(|script| (script.name, script.replace("redis.call('TIME')", &read)))
            .collect();
        Self(Arc::new(Inner { clocked, ..Inner::new(self.target().clone(), DEFAULT_ANSWER_WITHIN) }))
    }

    /// How many requests this store has sent; a pipeline counts once. The subscription has its own
    /// connection and is not counted here.
    pub fn requests(&self) -> u64 {
        self.0.topology.requests()
    }

    /// Why listeners could not be told of what a script has done, if it says so. That is no error of the call: it
    /// costs lateness, and so it is said in the log as well.
    pub(super) fn told(&self, at: &PartitionNames, reply: &mut Reply) -> Result<Option<Error>> {
        Ok(reply.maybe_text()?.map(|reason| self.untold(at, &reason)))
    }

    pub(super) fn untold(&self, at: &PartitionNames, reason: &str) -> Error {
        // "unknown command", and to a script "Unknown Redis command called".
        let (kind, advice) = if reason.to_ascii_lowercase().contains("unknown") {
            (ErrorKind::Unsupported, "the server has no sharded pub/sub".to_owned())
        } else {
            let channels = format!("grant this user +spublish and the channels &{}:*", at.namespace);
            (ErrorKind::Permission, channels)
        };
        let message = format!(
            "listeners could not be told, and find what was done by looking, up to five seconds late: {reason}; {advice}"
        );
        let error = Error::new(kind, message);
        if self.0.untold.should_log(&error) {
            warn!(topic = %at.topic, %error, "wake-ups are refused");
        }
        error
    }

    /// From now on it is said if a partition of this topic is gone that was there: somebody serves it.
    pub fn serve(&self, topic: &str) {
        lock(&self.0.made).entry(topic.to_owned()).or_default();
    }

    /// A partition is there.
    pub(super) fn note_made(&self, at: &PartitionNames) {
        if let Some(made) = lock(&self.0.made).get_mut(&at.topic) {
            made.partitions.insert(at.index);
        }
    }

    /// Set if it was there.
    pub(super) fn knows(&self, at: &PartitionNames) -> bool {
        lock(&self.0.made).get(&at.topic).is_some_and(|made| made.partitions.contains(&at.index))
    }

    /// A partition had to be made again.
    pub(super) fn say_gone(&self, at: &PartitionNames, error: &Error) {
        let is_news = lock(&self.0.made).get(&at.topic).is_some_and(|made| made.gone.is_new(error));
        if is_news {
            warn!(
                topic = %at.topic, partition = at.index, name = at.key("meta"),
                "the names of a partition were gone, and were made again: was something deleted, or the database emptied \
                 or exchanged (DEL, FLUSHDB, FLUSHALL, SWAPDB), or has an empty server taken over?"
            );
        }
    }

    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// Where its connections live.
    pub fn home(&self) -> Home {
        self.target().access.home
    }

    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }
}

impl fmt::Debug for Store {
    /// Without what an address might hold: user, password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.target().endpoints)
    }
}
