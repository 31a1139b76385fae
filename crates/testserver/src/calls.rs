//! Requests by name: which were made, and which of them fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::{CommandRequest, Intervention, RedisReply, TestServer};

/// Which calls were made, and which are to fail. Clones share it. A [`Server::intercept`](crate::Server::intercept) passes
/// each request to [`arrived`](Self::arrived).
#[derive(Clone, Debug, Default)]
pub struct CallRecorder {
    /// The names of scripts, by the hashes that EVALSHA names.
    scripts: Arc<HashMap<String, &'static str>>,
    book: Arc<Mutex<CallRecords>>,
}

#[derive(Debug, Default)]
struct CallRecords {
    faults: Vec<(&'static str, CallFault)>,
    made: Vec<(String, Instant)>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// It is refused with this error code, and nothing is done.
    Refused(&'static str),
    /// It is done, and its answer is lost with the connection.
    Unanswered,
}

impl CallRecorder {
    /// Loads scripts, each a name and a text, and returns an empty book that knows them by their hashes. So a call that
    /// is counted or fails is never one that only finds its script missing.
    pub fn of_scripts<T: AsRef<[u8]>>(
        server: &TestServer,
        scripts: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Self {
        let load = |(name, text): (_, T)| match server.command([&b"SCRIPT"[..], b"LOAD", text.as_ref()]) {
            RedisReply::Bulk(hash) => (String::from_utf8_lossy(&hash).into_owned(), name),
            other => panic!("the script {name} is not loaded: {other:?}"),
        };
        Self { scripts: Arc::new(scripts.into_iter().map(load).collect()), book: Arc::default() }
    }

    /// Lets the next `times` calls of this name fail, after those that were to fail before.
    pub fn fail(&self, name: &'static str, fault: CallFault, times: usize) {
        self.book().faults.extend(std::iter::repeat_n((name, fault), times));
    }

    /// Lets no more calls fail.
    pub fn heal(&self) {
        self.book().faults.clear();
    }

    /// Returns when calls of this name were made.
    #[must_use]
    pub fn made(&self, name: &str) -> Vec<Instant> {
        self.book().made.iter().filter(|(made, _)| *made == name).map(|(_, at)| *at).collect()
    }

    /// Writes down a request that has arrived, and returns how it fails.
    #[must_use]
    pub fn arrived(&self, request: &CommandRequest<'_>) -> Intervention {
        let name = self.name_of(request);
        let mut book = self.book();
        let place = book.faults.iter().position(|(failing, _)| *failing == name);
        book.made.push((name, Instant::now()));
        match place.map(|place| book.faults.remove(place).1) {
            None => Intervention::Execute,
            Some(CallFault::Refused(code)) => Intervention::Refuse(format!("{code} as the test says")),
            Some(CallFault::Unanswered) => Intervention::Unanswered,
        }
    }

    /// A script's name, or that of a command in small letters. Reading trigger keys is called `touch`, so that canaries,
    /// which are read as well, are not counted.
    fn name_of(&self, request: &CommandRequest<'_>) -> String {
        let text =
            |at: usize| String::from_utf8_lossy(request.args.get(at).map(|arg| &arg[..]).unwrap_or_default());
        match text(0).to_ascii_lowercase().as_str() {
            "evalsha" => (*self.scripts.get(&*text(1)).unwrap_or(&"evalsha")).to_owned(),
            "exists" if !text(1).starts_with("keylapse:") => "touch".to_owned(),
            other => other.to_owned(),
        }
    }

    fn book(&self) -> MutexGuard<'_, CallRecords> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
