//! Everything that takes part in a run: the server, the processes and the lines between them.

mod actor;
mod attached;
mod drain;
mod probe;
mod subscriber;
mod troupe;
mod vitals;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use keylapse_support::{Builder, Server};
use tokio::sync::{Mutex, MutexGuard};

pub use actor::Actor;
pub(crate) use subscriber::announcements;
pub use troupe::Troupe;
pub use vitals::{Slope, Vitals};

use crate::ledger::Ledger;

/// How many of what take part.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The program that children are: this one.
    pub program: PathBuf,
    /// Listener processes.
    pub listeners: usize,
    /// One more listener process, to which only the server's and the lines' faults happen.
    pub elder: bool,
    /// Producer processes.
    pub producers: usize,
    /// Keys that each producer begins with in a second.
    pub per_second: u64,
    /// Keys of the attached topic that are begun with in a second, by writers that know nothing of keylapse.
    pub keys_per_second: u32,
    /// Of a thousand timers, how many take their listener's process down.
    pub pills_per_thousand: u64,
    /// The topics' lease.
    pub lease: Duration,
    /// What the producers' random choices begin with.
    pub seed: u64,
    /// Of several servers, how many replicas a primary has; then one topic is armed steadily.
    pub replicas: Option<u32>,
}

/// The server of a run, and those who use it.
#[derive(Debug)]
pub struct Harness {
    server: Mutex<Server>,
    /// Those who use it, each behind a line of its own.
    pub troupe: Troupe,
}

impl Harness {
    /// Starts everything.
    ///
    /// # Panics
    /// If something cannot be started.
    pub async fn open(cast: &Cast, server: Builder, folder: &Path) -> Self {
        let server = server.start().await;
        let ledger = Ledger::open(folder).expect("a ledger");
        let actor =
            async |role, place| Actor::behind_a_line(role, place, cast, &server, &ledger, folder).await;
        let troupe = Troupe::open(cast, &ledger, actor).await;
        Self { server: Mutex::new(server), troupe }
    }

    /// The server; whoever has it keeps others waiting.
    pub async fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().await
    }

    /// Writes keys of the attached topic, and listens to what becomes of them, for as long as it is awaited;
    /// once it is told to stop, nothing new is begun, and it ends with the last key's life.
    pub async fn foreign(&self, cast: &Cast, url: &str, stop: &AtomicBool) {
        if cast.keys_per_second > 0 {
            let version = self.server().await.version();
            attached::play(cast, version, url, &self.troupe.ledger, stop).await;
        }
    }
}
