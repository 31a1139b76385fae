//! Calls to the server: which are made, and which of them fail. For the unit tests of those who make them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use keylapse_testserver::{Intervention, Request};
use tokio::time::Instant;

use crate::error::ErrorKind;
use crate::lock::lock;
use crate::wire::scripts;

/// What was called, and what is to fail. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    faults: Vec<(&'static str, Fault)>,
    made: Vec<(String, Instant)>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused, and nothing is done.
    Refused(ErrorKind),
    /// It is done, and its answer is lost with the connection.
    Unanswered,
}

impl Calls {
    /// The next `times` calls of this name fail, after those that were to fail before.
    pub(crate) fn fail(&self, name: &'static str, fault: Fault, times: usize) {
        lock(&self.0).faults.extend(std::iter::repeat_n((name, fault), times));
    }

    /// No more faults.
    pub(crate) fn heal(&self) {
        lock(&self.0).faults.clear();
    }

    /// When calls of this name were made.
    pub(crate) fn made(&self, name: &str) -> Vec<Instant> {
        lock(&self.0).made.iter().filter(|(made, _)| *made == name).map(|(_, at)| *at).collect()
    }

    /// A call has arrived at the server: how it fails.
    pub(super) fn arrived(&self, request: &Request<'_>) -> Intervention {
        let name = name_of(request);
        let mut book = lock(&self.0);
        let place = book.faults.iter().position(|(failing, _)| *failing == name);
        book.made.push((name, Instant::now()));
        match place.map(|place| book.faults.remove(place).1) {
            None => Intervention::Execute,
            Some(Fault::Refused(kind)) => Intervention::Refuse(format!("{} as the test says", code_of(kind))),
            Some(Fault::Unanswered) => Intervention::Unanswered,
        }
    }
}

/// A script's name, or that of a command in small letters. Reading trigger keys is called `touch`, so that
/// canaries, which are read as well, are not counted.
fn name_of(request: &Request<'_>) -> String {
    static SCRIPTS: LazyLock<HashMap<&[u8], &str>> =
        LazyLock::new(|| scripts::all().map(|script| (script.sha.as_bytes(), script.name)).collect());
    let text = |at: usize| request.args.get(at).map(|arg| &arg[..]).unwrap_or_default();
    match text(0).to_ascii_uppercase().as_slice() {
        b"EVALSHA" => SCRIPTS.get(text(1)).copied().unwrap_or("evalsha").to_owned(),
        b"EXISTS" if !text(1).starts_with(b"keylapse:") => "touch".to_owned(),
        other => String::from_utf8_lossy(other).to_ascii_lowercase(),
    }
}

/// What a server says that means this.
fn code_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "LOADING",
        ErrorKind::Permission => "NOPERM",
        ErrorKind::ReadOnly => "READONLY",
        ErrorKind::OutOfMemory => "OOM",
        ErrorKind::WrongType => "WRONGTYPE",
        ErrorKind::Auth => "NOAUTH",
        ErrorKind::Partitions => "PARTITIONS",
        ErrorKind::WireVersion => "WIREVERSION",
        _ => "ERR",
    }
}
