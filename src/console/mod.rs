//! What an operator sees and does: topics by their names, without the types of their payloads.
//!
//! A [`Console`] finds topics where their programs have registered them. What it shows costs the server bounded work,
//! however much there is; what it does is done by the same scripts as a [`Schedule`]'s calls. The program `keylapse`
//! is a thin layer over it.

mod journal;
mod tail;

pub use self::journal::{JournalCursor, JournalEntry, JournalPage};
pub use self::tail::{Missed, Tail, TailEvent, TailWhat, Tailed};
pub use crate::wire::calls::ended::Ending;
pub use crate::wire::calls::journal::JournalBounds;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::schedule::Schedule;

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
        console.client.check()?;
        console.client.store.reach().await?;
        Ok(console)
    }

    /// A console that connects when it is first used.
    pub fn new(client: Client) -> Self {
        let schedule = Schedule::new(client.clone());
        Self { client, schedule }
    }
}
