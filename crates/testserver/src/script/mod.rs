//! Scripts, which are stored by the hash of their text and run by Lua 5.1.

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

/// All scripts, and the Lua state that runs them.
pub(crate) struct Scripts {
    state: Arc<Mutex<State>>,
    /// Created with the first script.
    host: Option<LuaHost>,
    loaded: HashMap<String, LoadedScript>,
}

struct LoadedScript {
    function: Function,
    shebang: Shebang,
}

pub(crate) struct ScriptInvocation<'a> {
    pub(crate) user: String,
    /// True for EVAL_RO and EVALSHA_RO.
    pub(crate) reading: bool,
    pub(crate) keys: &'a [Bytes],
    pub(crate) args: &'a [Bytes],
}

/// A compiled script, which any Lua state of this process can load.
struct CompiledScript {
    sha: String,
    shebang: Shebang,
    code: Vec<u8>,
}

/// When there are more, all are dropped. Otherwise a program that generates scripts would use ever more memory.
const MAX_COMPILED_SCRIPTS: usize = 1000;

/// Returns the scripts that any server of this process has compiled, by their texts. Each test has its own server, and
/// compiling its scripts again would take half of a short test.
fn compiled() -> MutexGuard<'static, BTreeMap<Bytes, Arc<CompiledScript>>> {
    static ALL: Mutex<BTreeMap<Bytes, Arc<CompiledScript>>> = Mutex::new(BTreeMap::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scripts {
    pub(crate) fn new(state: Arc<Mutex<State>>) -> Self {
        Self { state, host: None, loaded: HashMap::new() }
    }

    /// Compiles a script, unless it was compiled before, and returns its hash.
    pub(crate) fn load(&mut self, text: &Bytes) -> Result<String, ErrorReply> {
        let compiled = compiled().get(text).cloned();
        let script = compiled.map_or_else(|| self.compile(text), Ok)?;
        if !self.loaded.contains_key(&script.sha) {
            let function = self.host()?.load(&script.code)?;
            self.loaded.insert(script.sha.clone(), LoadedScript { function, shebang: script.shebang });
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
            |sha: &Bytes| self.loaded.contains_key(&*String::from_utf8_lossy(sha).to_ascii_lowercase());
        RedisReply::Array(shas.iter().map(|sha| RedisReply::flag(known(sha))).collect())
    }

    pub(crate) fn flush(&mut self) {
        self.loaded.clear();
        self.host = None;
    }

    pub(crate) fn run(&mut self, sha: &str, run: ScriptInvocation<'_>) -> CommandResult {
        let missing = || ErrorReply::of("NOSCRIPT No matching script. Please use EVAL.");
        let script = self.loaded.get(sha).ok_or_else(missing)?;
        script.shebang.admit(&run, &crate::engine::lock(&self.state))?;
        self.host.as_ref().ok_or_else(missing)?.run(sha, script, run)
    }

    fn host(&mut self) -> Result<&mut LuaHost, ErrorReply> {
        if self.host.is_none() {
            let host = LuaHost::new(self.state.clone());
            self.host =
                Some(host.map_err(|error| {
                    ErrorReply::from(format!("ERR cannot create the Lua state: {error}"))
                })?);
        }
        self.host.as_mut().ok_or(ErrorReply::of("ERR cannot create the Lua state"))
    }
}
