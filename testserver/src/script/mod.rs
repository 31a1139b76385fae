//! Scripts: kept by the hash of their text, and run by Lua 5.1.

mod bits;
mod calls;
mod convert;
mod errors;
mod host;
mod libraries;
mod msgpack;
mod shebang;
mod structs;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mlua::Function;

use crate::reply::{Answer, Refusal, Reply};
use crate::state::State;
use host::Host;
use shebang::Shebang;

/// All scripts, and the Lua that runs them.
pub(crate) struct Scripts {
    state: Arc<Mutex<State>>,
    /// Made when there is a first script.
    host: Option<Host>,
    known: HashMap<String, Script>,
}

/// A script that was compiled.
struct Script {
    function: Function,
    shebang: Shebang,
}

/// A call of a script.
pub(crate) struct Run<'a> {
    pub(crate) user: String,
    /// By EVAL_RO or EVALSHA_RO.
    pub(crate) reading: bool,
    pub(crate) keys: &'a [Bytes],
    pub(crate) args: &'a [Bytes],
}

pub(crate) fn sha_of(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

impl Scripts {
    pub(crate) fn new(state: Arc<Mutex<State>>) -> Self {
        Self { state, host: None, known: HashMap::new() }
    }

    /// Compiles a script, unless it is known; its hash.
    pub(crate) fn load(&mut self, text: &Bytes) -> Result<String, Refusal> {
        let sha = sha_of(text);
        if !self.known.contains_key(&sha) {
            let (shebang, body) = Shebang::split(text)?;
            let function = self.host()?.compile(body)?;
            self.known.insert(sha.clone(), Script { function, shebang });
        }
        Ok(sha)
    }

    pub(crate) fn exist(&self, shas: &[Bytes]) -> Reply {
        let known =
            |sha: &Bytes| self.known.contains_key(&*String::from_utf8_lossy(sha).to_ascii_lowercase());
        Reply::Array(shas.iter().map(|sha| Reply::flag(known(sha))).collect())
    }

    pub(crate) fn flush(&mut self) {
        self.known.clear();
        self.host = None;
    }

    pub(crate) fn run(&mut self, sha: &str, run: Run<'_>) -> Answer {
        let missing = || Refusal::of("NOSCRIPT No matching script. Please use EVAL.");
        let script = self.known.get(sha).ok_or_else(missing)?;
        script.shebang.admit(&run, &crate::engine::lock(&self.state))?;
        self.host.as_ref().ok_or_else(missing)?.run(sha, script, run)
    }

    fn host(&mut self) -> Result<&mut Host, Refusal> {
        if self.host.is_none() {
            let host = Host::new(self.state.clone());
            self.host =
                Some(host.map_err(|error| Refusal::from(format!("ERR Lua does not start: {error}")))?);
        }
        self.host.as_mut().ok_or(Refusal::of("ERR Lua does not start"))
    }
}
