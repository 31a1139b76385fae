//! What the screens show, as plain data: the state machine and the drawings are tested with it, without any server.

use keylapse_console::{Cursor, EntryState, TopicStanding};

/// A topic, in a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopicRow {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) attached: bool,
    pub(super) standing: TopicStanding,
    /// The text of its first alarm; empty where it has none.
    pub(super) said: String,
    pub(super) timers: u64,
    pub(super) quarantined: u64,
    pub(super) dead: u64,
    pub(super) enrolled: u64,
    pub(super) overdue: u64,
    pub(super) undelivered: u64,
    /// For how long the oldest of these should have run.
    pub(super) oldest_ms: u64,
    pub(super) due_1m: u64,
    pub(super) due_1h: u64,
    pub(super) running: usize,
    pub(super) limit: usize,
    pub(super) listeners: usize,
    /// Attempts that ended a second, once two reports of the listeners have been seen.
    pub(super) rate: Option<f64>,
    /// The share of the attempts of the last five minutes that failed.
    pub(super) failing: Option<f64>,
    pub(super) late_p50_us: Option<u64>,
    pub(super) late_p99_us: Option<u64>,
}

/// Some of the topics, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopicPage {
    pub(super) rows: Vec<TopicRow>,
    /// Topics before these.
    pub(super) skipped: usize,
    /// Topics that the filter lets pass.
    pub(super) matching: usize,
    /// The server's time; none where no topic was read.
    pub(super) now_ms: Option<u64>,
}

/// An entry of a topic, in a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryRow {
    pub(super) key: Vec<u8>,
    pub(super) state: EntryState,
    /// The arming, where the record can be read.
    pub(super) id: Option<String>,
    pub(super) at_ms: u64,
    pub(super) attempt: u32,
    pub(super) lost: u8,
    pub(super) bytes: u64,
    /// Why it died.
    pub(super) reason: &'static str,
    pub(super) error: String,
}

/// A page of a topic's entries, and how the topic is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryPage {
    pub(super) topic: TopicRow,
    pub(super) rows: Vec<EntryRow>,
    pub(super) next: Option<Cursor>,
    pub(super) looked_at: usize,
    pub(super) now_ms: u64,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timer {
    pub(super) timer: Option<EntryRow>,
    /// Dead letters, the newest first.
    pub(super) letters: Vec<EntryRow>,
    pub(super) enrolled: bool,
    /// What has happened and what will, the newest first.
    pub(super) timeline: Vec<(u64, String)>,
    pub(super) next: String,
    pub(super) not_now: Vec<String>,
    pub(super) served_by: Vec<String>,
    pub(super) now_ms: u64,
}

/// A listener, in a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ListenerRow {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) version: String,
    pub(super) places: String,
    /// For how long the runtime of its handlers has polled nothing.
    pub(super) stalled_ms: Option<u64>,
    /// Each server that it listens to, and how.
    pub(super) hears: String,
    /// Why it may miss something at present.
    pub(super) gap: String,
    pub(super) topics: String,
}

/// What one look at the server has to find out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Look {
    Topics { containing: String, skip: usize },
    Listeners,
    Entries { topic: String, state: EntryState, filter: String, after: Option<Cursor> },
    Timer { topic: String, key: Vec<u8> },
}

/// What it has found out.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Topics(TopicPage),
    Listeners(Vec<ListenerRow>),
    Entries(Box<EntryPage>),
    Timer(Box<Timer>),
}

impl Data {
    /// The server's time, where it has said it.
    pub(super) fn now_ms(&self) -> Option<u64> {
        match self {
            Self::Topics(page) => page.now_ms,
            Self::Listeners(_) => None,
            Self::Entries(page) => Some(page.now_ms),
            Self::Timer(timer) => Some(timer.now_ms),
        }
    }
}

/// What somebody wants to be done, and has agreed to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Act {
    pub(super) topic: String,
    pub(super) deed: Deed,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    RunNow(Vec<u8>),
    Cancel(Vec<u8>),
    Replay(Letter),
    Drop(Letter),
    Pause(String),
    Resume,
}

/// What tells one dead letter from all others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Letter {
    pub(super) key: Vec<u8>,
    pub(super) id: Option<String>,
    pub(super) died_ms: u64,
}

impl Letter {
    pub(super) fn of(row: &EntryRow) -> Self {
        Self { key: row.key.clone(), id: row.id.clone(), died_ms: row.at_ms }
    }
}
