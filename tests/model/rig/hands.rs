//! What a test does to a store past its calls: the clock, broken data, the
//! keys of strangers.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use keylapse::internals::names::Partition;
use keylapse::internals::{Clock, MemoryStore, Scan};
use keylapse_support::Server;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, cmd};
use tokio::sync::Mutex;

use super::Rig;

pub(crate) enum Hands {
    Memory { store: MemoryStore, clock: Clock },
    Redis { _server: Arc<Server>, admin: MultiplexedConnection, clock_key: String },
}

/// One server for all tests of the process that run at a time. Not a static of
/// its own, as that would never be dropped and the server outlive the tests.
pub(crate) async fn shared_server() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(Server::start().await);
    *shared = Arc::downgrade(&started);
    started
}

impl Hands {
    /// Sets the clock of a server; one in memory is moved.
    pub(crate) async fn set_clock(&self, micros: u64) {
        if let Self::Redis { clock_key, .. } = self {
            self.ask::<()>(cmd("SET").arg(clock_key).arg(micros)).await;
        }
    }

    /// Deletes all of a partition on a server.
    pub(crate) async fn forget(&self, at: &Partition) {
        self.ask::<()>(cmd("DEL").arg(&at.all())).await;
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let Self::Redis { admin, .. } = self else { panic!("there is no server to ask") };
        let answer = command.query_async(&mut admin.clone()).await;
        answer.unwrap_or_else(|error| panic!("the server refused: {error}"))
    }
}

impl Rig {
    /// Writes a record, a state or a kept arming, or deletes it, and nothing else.
    pub(crate) async fn put_raw(&self, hash: Scan, key: &[u8], value: Option<&[u8]>) {
        if let Hands::Memory { store, .. } = &self.hands {
            let value = value.map(Bytes::copy_from_slice);
            return store.put_raw(&self.at, hash, key, value).expect("the partition agrees");
        }
        let name = match hash {
            Scan::Records => &self.at.rec,
            Scan::States => &self.at.run,
            Scan::Next => &self.at.next,
            Scan::Lanes => &self.at.lanes,
        };
        match value {
            Some(value) => self.hands.ask::<()>(cmd("HSET").arg(name).arg(key).arg(value)).await,
            None => self.hands.ask::<()>(cmd("HDEL").arg(name).arg(key)).await,
        }
    }

    /// Loses the index entry of a timer.
    pub(crate) async fn unindex(&self, key: &[u8]) {
        if let Hands::Memory { store, .. } = &self.hands {
            return store.unindex(&self.at, key).expect("the partition agrees");
        }
        self.hands.ask::<()>(cmd("ZREM").arg(&self.at.due).arg(key)).await;
        self.hands.ask::<()>(cmd("ZREM").arg(&self.at.solo).arg(key)).await;
    }

    /// Puts somebody else's value where a trigger key might go.
    pub(crate) async fn put_foreign(&self, key: &str, value: &str) {
        match &self.hands {
            Hands::Memory { store, .. } => store.put_foreign(key.to_owned(), value.to_owned()),
            Hands::Redis { .. } => self.hands.ask(cmd("SET").arg(key).arg(value)).await,
        }
    }

    /// Lets a key expire then, whoever has written it.
    pub(crate) async fn expire_at(&self, key: &str, deadline: u64) {
        match &self.hands {
            Hands::Memory { store, .. } => store.expire_at(key.as_bytes(), deadline),
            Hands::Redis { .. } => self.hands.ask(cmd("PEXPIREAT").arg(key).arg(deadline)).await,
        }
    }

    /// What stands in a trigger key.
    pub(crate) async fn trigger(&self, key: &str) -> Option<String> {
        match &self.hands {
            Hands::Memory { store, .. } => {
                let value = store.trigger(key.as_bytes())?;
                Some(String::from_utf8_lossy(&value).into_owned())
            }
            Hands::Redis { .. } => self.hands.ask(cmd("GET").arg(key)).await,
        }
    }

    /// Publishes on the partition's channel, as another program might.
    /// A store in memory has no such channel.
    pub(crate) async fn publish(&self, message: &[u8]) {
        if let Hands::Redis { .. } = &self.hands {
            self.hands.ask::<()>(cmd("SPUBLISH").arg(&self.at.wake).arg(message)).await;
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.hands, Hands::Memory { .. })
    }
}
