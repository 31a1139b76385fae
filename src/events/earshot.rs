//! Hears one server's expired keys for a while: for whoever looks once, and keeps no subscription.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use keylapse_connection::{Cmd, Value};
use tokio::sync::watch;

use crate::backlog::Receiver;
use crate::connection::{Server, Subscription};
use crate::error::Result;
use crate::events::calls::release_canary;
use crate::events::decoder::{Decoded, Decoder};
use crate::events::open::{Opened, open};
use crate::events::{Among, Event, Share, Source};
use crate::rounds::Rounds;

/// A subscription that ends when it is dropped.
pub struct Earshot {
    connection: Subscription,
    pushed: Receiver<Decoded>,
    ordered: bool,
}

impl Earshot {
    /// Subscribes, within a deadline.
    pub async fn of(server: &Server, namespace: &str) -> Result<Self> {
        let address = server.find().await?;
        let source = Source {
            server: server.clone(),
            among: Among::Alone,
            slots_move: false,
            decoder: Decoder::new(namespace, address.db(), &[], &[], false),
            share: watch::channel(Share::default()).1,
            prompts: Arc::default(),
            rounds: Rounds::default(),
        };
        let Opened { connection, pushed, ordered, .. } = open(&address, &source, &Share::default()).await?;
        Ok(Self { connection, pushed, ordered })
    }

    /// The connection that is subscribed, where there can be one: what is announced before an answer is heard before.
    pub fn voice(&self) -> Voice {
        Voice(self.connection.clone())
    }

    /// Whether it is: in RESP2 it is another connection.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The next key that is announced; none when the connection has ended.
    pub async fn expired(&mut self) -> Option<Bytes> {
        loop {
            match self.pushed.recv().await? {
                Decoded::Event(Event::Expired(key)) => return Some(key),
                Decoded::Disconnected => return None,
                _ => {}
            }
        }
    }
}

impl fmt::Debug for Earshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Earshot").field("ordered", &self.ordered).finish_non_exhaustive()
    }
}

/// Asks on a subscribed connection.
#[derive(Clone, Debug)]
pub struct Voice(Subscription);

impl Voice {
    /// Sends a command.
    ///
    /// # Errors
    /// When it is refused or has no answer.
    pub async fn ask(&self, doing: &str, command: &Cmd) -> Result<Value> {
        self.0.call(doing, command).await
    }

    /// Reads a key of 1 ms once it is due.
    pub async fn release(&self, key: String) -> Result<()> {
        release_canary(key, self.0.clone()).await
    }
}
