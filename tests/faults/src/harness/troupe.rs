//! The processes of a run: listeners, producers, and who has seen them all.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Sender, TryRecvError, channel};

use futures::future::join_all;

use super::actor::Role;
use super::{Actor, Cast, Vitals, vitals};
use crate::clock::Micros;
use crate::ledger::{Entry, Ledger};
use crate::stalls;

/// The processes of a run, and the ledger of whoever runs them.
#[derive(Debug)]
pub struct Troupe {
    pub(crate) ledger: Ledger,
    listeners: Vec<Actor>,
    elder: Option<Actor>,
    producers: Vec<Actor>,
    _open: Sender<()>,
}

impl Troupe {
    /// Starts them, each with its own ways to whatever servers there are.
    ///
    /// # Panics
    /// If something cannot be started.
    pub async fn with_servers(cast: &Cast, url: &str, folder: &Path) -> Self {
        let ledger = Ledger::open(folder).expect("a ledger");
        let actor = async |role, place| Actor::new(role, place, cast, url, &ledger, folder);
        Self::open(cast, &ledger, actor).await
    }

    /// Starts them.
    pub(super) async fn open(
        cast: &Cast,
        ledger: &Ledger,
        actor: impl AsyncFn(Role, usize) -> Actor,
    ) -> Self {
        // All lines run through this process: when it stands still, everybody is cut off.
        let (open, closed) = channel::<()>();
        stalls::note(ledger.clone(), move || closed.try_recv() != Err(TryRecvError::Disconnected));
        let all = async |role, places: Range<usize>| join_all(places.map(|place| actor(role, place))).await;
        let listeners = all(Role::Listener, 0..cast.listeners).await;
        let elder = cast.listeners..cast.listeners + usize::from(cast.elder);
        let elder = all(Role::Listener, elder).await.pop();
        let producers = all(Role::Producer, 0..cast.producers).await;
        Self { ledger: ledger.clone(), listeners, elder, producers, _open: open }
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

    /// Puts a fault that is over on record.
    pub fn record_fault(&self, since: Micros, actor: Option<&str>, fault: &impl Debug, is_outage: bool) {
        let (actor, fault) = (actor.map(str::to_owned), format!("{fault:?}"));
        self.ledger.write(Entry::Fault { since, actor, fault, is_outage, partitions: None, node: None });
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
