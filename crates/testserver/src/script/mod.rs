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

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mlua::Function;

use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::state::State;
use host::LuaHost;
use shebang::Shebang;

/// All scripts, and the Lua that runs them.
pub(crate) struct Scripts {
    state: Arc<Mutex<State>>,
    /// Made when there is a first script.
    host: Option<LuaHost>,
    known: HashMap<String, LoadedScript>,
}

/// A script that was compiled.
struct LoadedScript {
    function: Function,
    shebang: Shebang,
}

/// A call of a script.
pub(crate) struct ScriptInvocation<'a> {
    pub(crate) user: String,
    /// By EVAL_RO or EVALSHA_RO.
    pub(crate) reading: bool,
    pub(crate) keys: &'a [Bytes],
    pub(crate) args: &'a [Bytes],
}

/// A script that any Lua state of this process can load.
struct CompiledScript {
    sha: String,
    shebang: Shebang,
    code: Vec<u8>,
}

/// More than these are forgotten: a program may make up scripts for as long as it runs.
const MAX_COMPILED_SCRIPTS: usize = 1000;

/// What servers of this process have compiled, by the texts. Each test has a server of its own, and half of a
/// short test would be to compile the same scripts once more.
fn compiled() -> MutexGuard<'static, BTreeMap<Bytes, Arc<CompiledScript>>> {
    static ALL: Mutex<BTreeMap<Bytes, Arc<CompiledScript>>> = Mutex::new(BTreeMap::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scripts {
    pub(crate) fn new(state: Arc<Mutex<State>>) -> Self {
        Self { state, host: None, known: HashMap::new() }
    }

    /// Compiles a script, unless it is known; its hash.
    pub(crate) fn load(&mut self, text: &Bytes) -> Result<String, ErrorReply> {
        let known = compiled().get(text).cloned();
        let script = known.map_or_else(|| self.compile(text), Ok)?;
        if !self.known.contains_key(&script.sha) {
            let function = self.host()?.load(&script.code)?;
            self.known.insert(script.sha.clone(), LoadedScript { function, shebang: script.shebang });
        }
        Ok(script.sha.clone())
    }

    fn compile(&mut self, text: &Bytes) -> Result<Arc<CompiledScript>, ErrorReply> {
        let (shebang, body) = Shebang::split(text)?;
        let code = self.host()?.compile(body)?;
        let sha = sha1_smol::Sha1::from(text).digest().to_string();
        let script = Arc::new(CompiledScript { sha, shebang, code });
        let mut all = compiled();
        if all.len() >= MAX_COMPILED_SCRIPTS {
            all.clear();
        }
        all.insert(text.clone(), script.clone());
        Ok(script)
    }

    pub(crate) fn exist(&self, shas: &[Bytes]) -> RedisReply {
        let known =
            |sha: &Bytes| self.known.contains_key(&*String::from_utf8_lossy(sha).to_ascii_lowercase());
        RedisReply::Array(shas.iter().map(|sha| RedisReply::flag(known(sha))).collect())
    }

    pub(crate) fn flush(&mut self) {
        self.known.clear();
        self.host = None;
    }

    pub(crate) fn run(&mut self, sha: &str, run: ScriptInvocation<'_>) -> CommandResult {
        let missing = || ErrorReply::of("NOSCRIPT No matching script. Please use EVAL.");
        let script = self.known.get(sha).ok_or_else(missing)?;
        script.shebang.admit(&run, &crate::engine::lock(&self.state))?;
        self.host.as_ref().ok_or_else(missing)?.run(sha, script, run)
    }

    fn host(&mut self) -> Result<&mut LuaHost, ErrorReply> {
        if self.host.is_none() {
            let host = LuaHost::new(self.state.clone());
            self.host =
                Some(host.map_err(|error| ErrorReply::from(format!("ERR Lua does not start: {error}")))?);
        }
        self.host.as_mut().ok_or(ErrorReply::of("ERR Lua does not start"))
    }
}
