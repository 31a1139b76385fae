//! What an operator sees and does: topics by their names, without the types of their payloads.
//!
//! A [`Console`] finds topics where their programs have registered them. What it shows costs the server bounded work,
//! however much there is; what it does is done by the same scripts as a [`Schedule`]'s calls. The program `keylapse`
//! is a thin layer over it, so that whatever one can do, all can.
//!
//! ```no_run
//! use keylapse_console::{Console, EntryState};
//!
//! # async fn look() -> keylapse::Result<()> {
//! let console = Console::connect("redis://127.0.0.1/").await?;
//! for topic in console.topics().await? {
//!     let overview = topic.overview().await?;
//!     println!("{}: {} timers, {} overdue", topic.name(), overview.timers, overview.overdue);
//! }
//! let orders = console.topic("order.unpaid").await?;
//! let page = orders.page(EntryState::Dead, None, 50).await?;
//! println!("{} letters", page.entries.len());
//! # Ok(())
//! # }
//! ```
//!
//! Everything that is shown can be written as JSON: times are milliseconds since 1970 by the server's clock, keys and
//! payloads printable ASCII with escapes (see [`text`]).

#![forbid(unsafe_code)]

mod act;
mod alarms;
mod bulk;
mod check;
mod cursor;
pub mod doctor;
mod entry;
mod filter;
mod journal;
mod listing;
mod of_key;
mod overview;
mod rates;
mod running;
mod span;
mod status;
mod survey;
mod tail;
pub mod text;
mod topics;
mod transfer;
mod verify;
mod why;
pub mod words;

pub use self::act::{Action, Done};
pub use self::alarms::{Alarm, AlarmKind};
pub use self::bulk::{Bulk, BulkEnd, BulkReport};
pub use self::check::{Breach, Checked, Limits, MaxUndelivered};
pub use self::cursor::Cursor;
pub use self::entry::{Entry, EntryState};
pub use self::filter::Filter;
pub use self::journal::{JournalCursor, JournalEntry, JournalPage};
pub use self::listing::Page;
pub use self::overview::Overview;
pub use self::rates::Rates;
pub use self::span::{parse_span, show_span};
pub use self::status::{Recent, Status, TopicStanding, TopicStatus};
pub use self::survey::{MissingFigure, Survey, SurveyRequest, Watched};
pub use self::tail::{Missed, Tail, TailEvent, Tailed};
pub use self::topics::{KnownTopic, Registry, UnreadableTopic};
pub use self::transfer::{Export, ImportReport};
pub use self::verify::{Fault, Verified};
pub use self::why::{Moment, Why};

use keylapse::inside::{self, ClientInside as _, ScheduleInside as _};
use keylapse_connection::{self as connection, error, id, limits, log};
use keylapse_pattern::{self as pattern, escape};
use keylapse_wire::{self as wire, destination, distribution, policy, time, trace};

use keylapse::{Client, Schedule};

pub use keylapse_wire::counted::{counted, show_count};

pub use crate::wire::Ending;
pub use crate::wire::calls::journal::JournalBounds;

use crate::destination::MAX_NAME;
use crate::error::{Error, Result};
use crate::wire::{ListenerReport, Store, listeners};

/// The operator's door to the topics of a namespace. Cheap to clone; clones share a connection.
#[derive(Clone, Debug)]
pub struct Console {
    client: Client,
    schedule: Schedule,
}

impl Console {
    /// Connects to a server, given by its URL or as a [`Client`].
    ///
    /// # Errors
    /// As for [`Schedule::connect`].
    pub async fn connect<C>(client: C) -> Result<Self>
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        let console = Self::new(client.try_into().map_err(Into::into)?);
        console.client.check_settings()?;
        console.store().reach(&console.namespace()).await?;
        Ok(console)
    }

    /// A console that connects when it is first used.
    pub fn new(client: Client) -> Self {
        let schedule = Schedule::new(client.clone());
        Self { client, schedule }
    }

    /// What each listener said of itself last, as [`Schedule::listeners`].
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn listeners(&self) -> Result<Vec<ListenerReport>> {
        self.schedule.listeners().await
    }

    /// The same, with those that have said nothing since: a report is forgotten after ten minutes.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn reports(&self) -> Result<Vec<ListenerReport>> {
        let hash = listeners(self.namespace());
        self.persist(|_| self.store().reports(&hash)).await
    }

    /// Asks each listener of a topic to call a destination now that it holds back, such as a host whose circuit is open.
    /// How that went is in their next reports.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, there is no such topic, or the name is longer than 255 bytes.
    pub async fn try_now(&self, topic: &str, destination: &str) -> Result<Done> {
        if destination.len() > MAX_NAME {
            return Err(Error::invalid(format!(
                "a destination has at most {MAX_NAME} bytes: take one that is reported"
            )));
        }
        self.topic(topic).await?.try_now(destination).await
    }

    /// Returns where the servers are, without user and password, such as `127.0.0.1:6379`, `h1:7000,h2:7001 (cluster)` or
    /// `h1:26379 (master shop of sentinels)`, with the database where that is not 0.
    pub fn servers(&self) -> String {
        self.store().target().to_string()
    }

    /// The prefix of all names in Redis.
    pub fn namespace(&self) -> &str {
        self.client.prefix()
    }

    fn store(&self) -> &Store {
        self.client.store()
    }

    /// Makes a call until it is answered or refused, or the client's patience has run out.
    async fn persist<T, F: Future<Output = Result<T>>>(&self, call: impl FnMut(bool) -> F) -> Result<T> {
        self.schedule.repeated(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_documented_default_is_so() {
        let console = Console::new(Client::new("redis://localhost").expect("a URL"));
        let survey = format!("{:?}", console.survey("a:{id}").expect("a pattern"));
        for (documented, value) in [
            ("Default: 1,000,000.", "cap: 1000000"),
            ("Default: 50,000.", "scan_rate: 50000"),
            ("Default: 10 s; 0: not at all.", "watch: 10s"),
        ] {
            assert!(include_str!("survey.rs").contains(documented) && survey.contains(value), "{documented}");
        }
        assert!(format!("{:?}", console.doctor()).contains("measure: None"));
    }
}
