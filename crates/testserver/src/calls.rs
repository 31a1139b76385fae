//! A log of calls by name, which can also make calls fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::{CommandRequest, Intervention, RedisReply, TestServer};

/// Records calls by name, and makes calls fail. Clones share the record. The function of
/// [`TestServer::intercept`](crate::TestServer::intercept) passes each request to [`arrived`](Self::arrived).
#[derive(Clone, Debug, Default)]
pub struct CallRecorder {
    /// The names of scripts by their hashes.
    scripts: Arc<HashMap<String, &'static str>>,
    records: Arc<Mutex<CallRecords>>,
}

#[derive(Debug, Default)]
struct CallRecords {
    faults: Vec<(&'static str, CallFault)>,
    made: Vec<(String, Instant)>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The server refuses the call with this error code, and does not execute it.
    Refused(&'static str),
    /// The server executes the call, and closes the connection without a reply.
    Unanswered,
}

impl CallRecorder {
    /// Loads scripts, each given by name and text, and returns an empty record with their hashes. As the scripts are loaded,
    /// no recorded call fails only because its script is missing.
    ///
    /// # Panics
    /// Panics if a script does not compile.
    pub fn of_scripts<T: AsRef<[u8]>>(
        server: &TestServer,
        scripts: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Self {
        let load = |(name, text): (_, T)| match server.command([&b"SCRIPT"[..], b"LOAD", text.as_ref()]) {
            RedisReply::Bulk(hash) => (String::from_utf8_lossy(&hash).into_owned(), name),
            other => panic!("cannot load the script {name}: {other:?}"),
        };
        Self { scripts: Arc::new(scripts.into_iter().map(load).collect()), records: Arc::default() }
    }

    /// Makes the next `times` calls of this name fail, in addition to earlier orders.
    pub fn fail(&self, name: &'static str, fault: CallFault, times: usize) {
        self.records().faults.extend(std::iter::repeat_n((name, fault), times));
    }

    /// Makes no more calls fail.
    pub fn heal(&self) {
        self.records().faults.clear();
    }

    /// Returns the times of calls of this name.
    #[must_use]
    pub fn made(&self, name: &str) -> Vec<Instant> {
        self.records().made.iter().filter(|(made, _)| *made == name).map(|(_, at)| *at).collect()
    }

    /// Records a request, and returns whether and how it fails.
    #[must_use]
    pub fn arrived(&self, request: &CommandRequest<'_>) -> Intervention {
        let name = self.name_of(request);
        let mut records = self.records();
        let index = records.faults.iter().position(|(failing, _)| *failing == name);
        records.made.push((name, Instant::now()));
        match index.map(|index| records.faults.remove(index).1) {
            None => Intervention::Execute,
            Some(CallFault::Refused(code)) => Intervention::Refuse(format!("{code} refused by the test")),
            Some(CallFault::Unanswered) => Intervention::Unanswered,
        }
    }

    /// Returns the name of a script, or of a command in lower case. EXISTS of a marker key or attached key is called
    /// `touch`, because listeners read heartbeat keys with EXISTS, too.
    fn name_of(&self, request: &CommandRequest<'_>) -> String {
        let text =
            |at: usize| String::from_utf8_lossy(request.args.get(at).map(|arg| &arg[..]).unwrap_or_default());
        match text(0).to_ascii_lowercase().as_str() {
            "evalsha" => (*self.scripts.get(&*text(1)).unwrap_or(&"evalsha")).to_owned(),
            "exists" if !text(1).starts_with("keylapse:") => "touch".to_owned(),
            other => other.to_owned(),
        }
    }

    fn records(&self) -> MutexGuard<'_, CallRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
