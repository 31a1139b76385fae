//! What is known of the hosts that are called: who has a place there, and who is left alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::circuit::{Circuit, Limits, Way};
use crate::turns::Turns;

/// All hosts of a topic: as many as the file lists, whatever payloads say.
#[derive(Debug)]
pub(crate) struct Hosts {
    places: usize,
    limits: Limits,
    known: Mutex<HashMap<String, Host>>,
    /// How many are left alone.
    open: Gauge,
}

#[derive(Debug)]
struct Host {
    places: Arc<Semaphore>,
    circuit: Circuit,
    /// Of those who find it full, and of those who find it left alone: that may be for much longer.
    full: Turns,
    open: Turns,
}

/// The right to call a host.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    hosts: &'a Hosts,
    host: String,
    _permit: OwnedSemaphorePermit,
}

/// Why there is none, and after how long to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// All are taken.
    Full(Duration),
    /// It has failed too often, and is left alone.
    Open(Duration),
}

/// How soon one asks again who found no place: places of a host that answers are free again by then.
const SOON: Duration = Duration::from_millis(100);

impl Hosts {
    pub(crate) fn new(places: usize, limits: Limits, open: Gauge) -> Self {
        Self { places, limits, known: Mutex::default(), open }
    }

    pub(crate) fn enter(&self, host: &str) -> Result<Place<'_>, Refused> {
        let mut known = self.known();
        let at = known.entry(host.to_owned()).or_insert_with(|| Host {
            places: Arc::new(Semaphore::new(self.places)),
            circuit: Circuit::new(self.limits),
            full: Turns::new(),
            open: Turns::new(),
        });
        let Ok(permit) = Arc::clone(&at.places).try_acquire_owned() else {
            return Err(Refused::Full(at.full.take(SOON)));
        };
        match at.circuit.enter(Instant::now()) {
            Way::Free => Ok(Place { hosts: self, host: host.to_owned(), _permit: permit }),
            Way::Wait(wait) => Err(Refused::Open(at.open.take(wait))),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    pub(crate) fn succeed(&self) {
        self.with(Circuit::succeed);
    }

    pub(crate) fn fail(&self) {
        self.with(|circuit| circuit.fail(Instant::now()));
    }

    fn with(&self, change: impl FnOnce(&mut Circuit)) {
        if let Some(Host { circuit, .. }) = self.hosts.known().get_mut(&self.host) {
            let was_open = circuit.is_open();
            change(circuit);
            match (was_open, circuit.is_open()) {
                (false, true) => self.hosts.open.increment(1.0),
                (true, false) => self.hosts.open.decrement(1.0),
                _ => {}
            }
        }
    }
}

/// When the file is read again, others are in their place, who know nothing yet.
impl Drop for Hosts {
    fn drop(&mut self) {
        let open = self.known().values().filter(|host| host.circuit.is_open()).count();
        self.open.decrement(open as f64);
    }
}
