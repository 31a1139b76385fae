//! Everything that takes part in a run: the server, the processes and the lines between them.

pub(crate) mod actor;
mod attached;
mod drain;
mod probe;
mod vitals;

use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;

use futures::future::join_all;
use keylapse_support::{Builder, Server};
use tokio::sync::{Mutex, MutexGuard};

pub use actor::Actor;
use actor::Role;
pub use vitals::{Slope, Vitals};

use crate::clock::Micros;
use crate::ledger::{Entry, Ledger};
use crate::stalls;

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
    /// Several servers, and one topic that is armed steadily.
    pub is_sharded: bool,
}

/// The parts of a run.
#[derive(Debug)]
pub struct Harness {
    server: Mutex<Server>,
    ledger: Ledger,
    listeners: Vec<Actor>,
    elder: Option<Actor>,
    producers: Vec<Actor>,
    _open: Sender<()>,
}

impl Harness {
    /// Starts everything.
    ///
    /// # Panics
    /// If something cannot be started.
    pub async fn open(cast: &Cast, server: Builder, folder: &Path) -> Self {
        let server = server.start().await;
        let ledger = Ledger::open(folder).expect("a ledger");
        // All lines run through this process: when it stands still, everybody is cut off.
        let (open, closed) = channel::<()>();
        stalls::note(ledger.clone(), move || closed.try_recv() != Err(TryRecvError::Disconnected));
        let all = async |role, places: Range<usize>| {
            join_all(places.map(|place| Actor::behind_a_line(role, place, cast, &server, &ledger, folder))).await
        };
        let listeners = all(Role::Listener, 0..cast.listeners).await;
        let elder = cast.listeners..cast.listeners + usize::from(cast.elder);
        let elder = all(Role::Listener, elder).await.pop();
        let producers = all(Role::Producer, 0..cast.producers).await;
        Self { server: Mutex::new(server), ledger, listeners, elder, producers, _open: open }
    }

    /// The server; whoever has it keeps others waiting.
    pub async fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().await
    }

    /// One of the listeners, whatever the number.
    pub fn listener(&self, which: u8) -> &Actor {
        &self.listeners[usize::from(which) % self.listeners.len()]
    }

    /// One of the producers, whatever the number.
    pub fn producer(&self, which: u8) -> &Actor {
        &self.producers[usize::from(which) % self.producers.len()]
    }

    /// One of either, whatever the number.
    pub fn actor(&self, which: u8) -> &Actor {
        let all: Vec<_> = self.listeners.iter().chain(&self.elder).chain(&self.producers).collect();
        all[usize::from(which) % all.len()]
    }

    /// Watches the elder for as long as it is awaited.
    pub async fn watch_elder(&self, readings: &mut Vec<Vitals>) {
        match &self.elder {
            Some(elder) => vitals::watch(elder.pid().await, readings).await,
            None => std::future::pending().await,
        }
    }

    /// Writes keys of the attached topic, and listens to what becomes of them, for as long as it is awaited;
    /// once it is told to stop, nothing new is begun, and it ends with the last key's life.
    pub async fn foreign(&self, cast: &Cast, url: &str, stop: &AtomicBool) {
        if cast.keys_per_second > 0 {
            attached::play(cast, url, &self.ledger, stop).await;
        }
    }

    /// Puts a fault that is over on record.
    pub fn record_fault(&self, since: Micros, actor: Option<&str>, fault: &impl Debug, is_outage: bool) {
        let (actor, fault) = (actor.map(str::to_owned), format!("{fault:?}"));
        self.ledger.write(Entry::Fault { since, actor, fault, is_outage, partitions: None });
    }

    /// Ends the producers, in order: what they began with, they finish.
    pub async fn retire_producers(&self) {
        join_all(self.producers.iter().map(Actor::retire)).await;
    }

    /// Ends everything, in order.
    pub async fn close(self) {
        self.retire_producers().await;
        join_all(self.listeners.iter().chain(&self.elder).map(Actor::retire)).await;
    }
}
