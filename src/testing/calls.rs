//! Calls to the store that fail: for the unit tests of those who make them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};

/// What was called, and what is to fail. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    faults: Vec<(&'static str, Fault)>,
    made: Vec<(&'static str, Instant)>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused, and nothing is done.
    Refused(ErrorKind),
    /// It is done, and its answer is lost.
    Unanswered,
}

impl Calls {
    /// The next `times` calls of this name fail, after those that were to fail before.
    pub(crate) fn fail(&self, name: &'static str, fault: Fault, times: usize) {
        self.lock().faults.extend(std::iter::repeat_n((name, fault), times));
    }

    /// No more faults.
    pub(crate) fn heal(&self) {
        self.lock().faults.clear();
    }

    /// When calls of this name were made.
    pub(crate) fn made(&self, name: &str) -> Vec<Instant> {
        self.lock().made.iter().filter(|(made, _)| *made == name).map(|(_, at)| *at).collect()
    }

    /// A call is about to be made: how it fails.
    pub(super) fn before(&self, name: &'static str) -> Result<Option<Fault>> {
        let mut book = self.lock();
        book.made.push((name, Instant::now()));
        let place = book.faults.iter().position(|(failing, _)| *failing == name);
        match place.map(|place| book.faults.remove(place).1) {
            Some(Fault::Refused(kind)) => Err(Error::new(kind, "refused, as the test says")),
            fault => Ok(fault),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the caller hears of a call that was made.
pub(super) fn heard<T>(fault: Option<Fault>, answer: Result<T>) -> Result<T> {
    match fault {
        Some(_) => Err(Error::new(ErrorKind::Timeout, "no answer, as the test says").unanswered()),
        None => answer,
    }
}
