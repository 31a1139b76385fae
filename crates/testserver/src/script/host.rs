//! The Lua state that runs scripts.

use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use super::calls::CallContext;
use super::errors::{self, CHUNK};
use super::{LoadedScript, ScriptInvocation, convert, libraries};
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::state::State;

/// A Lua state that compiles and runs scripts.
pub(super) struct LuaHost {
    lua: Lua,
    context: CallContext,
    globals: Table,
    environment: Table,
    run: Function,
}

impl LuaHost {
    pub(super) fn new(state: Arc<Mutex<State>>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let context = CallContext::new(state);
        let server = server(&lua, &context)?;
        let sandbox = lua.load(sandbox(&lua)?).set_mode(ChunkMode::Binary);
        let (globals, environment, run) = sandbox.call((server, libraries::all(&lua)?))?;
        Ok(Self { lua, context, globals, environment, run })
    }

    /// Compiles a script to bytecode, with the debug information for errors.
    pub(super) fn compile(&self, body: &[u8]) -> Result<Vec<u8>, ErrorReply> {
        let chunk = self.lua.load(body).set_name(CHUNK).set_mode(ChunkMode::Text);
        chunk.into_function().map(|function| function.dump(false)).map_err(not_compiled)
    }

    pub(super) fn load(&self, code: &[u8]) -> Result<Function, ErrorReply> {
        let chunk = self.lua.load(code).set_mode(ChunkMode::Binary);
        chunk.set_environment(self.environment.clone()).into_function().map_err(not_compiled)
    }

    pub(super) fn run(&self, sha: &str, script: &LoadedScript, run: ScriptInvocation<'_>) -> CommandResult {
        let read_only = run.reading || script.shebang.no_writes;
        self.context.begin(run.user, read_only, script.shebang.allow_oom);
        let done = self.call(&script.function, run.keys, run.args);
        let (fine, value) =
            done.map_err(|error| ErrorReply::from(format!("ERR Error running script {sha}: {error}")))?;
        let reply = if fine { convert::from_lua(&value, 0) } else { Ok(failure(&value, sha)) };
        reply.map_err(|error| format!("ERR Error running script {sha}: {error}").into())
    }

    fn call(&self, script: &Function, keys: &[Bytes], args: &[Bytes]) -> mlua::Result<(bool, Value)> {
        self.globals.raw_set("KEYS", self.strings(keys)?)?;
        self.globals.raw_set("ARGV", self.strings(args)?)?;
        self.run.call(script)
    }

    fn strings(&self, words: &[Bytes]) -> mlua::Result<Table> {
        let words = words.iter().map(|word| convert::string(&self.lua, word));
        self.lua.create_sequence_from(words.collect::<mlua::Result<Vec<_>>>()?)
    }
}

/// Returns the bytecode of the sandbox. The first Lua state compiles it for all.
fn sandbox(lua: &Lua) -> mlua::Result<&'static [u8]> {
    static CODE: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(code) = CODE.get() {
        return Ok(code);
    }
    let compiled = lua.load(include_str!("sandbox.lua")).set_name("=sandbox").into_function()?;
    Ok(CODE.get_or_init(|| compiled.dump(false)))
}

fn not_compiled(error: mlua::Error) -> ErrorReply {
    let message = match error {
        mlua::Error::SyntaxError { message, .. } => message,
        other => other.to_string(),
    };
    format!("ERR Error compiling script (new function): {message}").into()
}

/// Returns the reply for an error that a script has not caught.
fn failure(value: &Value, sha: &str) -> RedisReply {
    let field = |name: &str| value.as_table().and_then(|table| table.raw_get::<Value>(name).ok());
    let text = match field("err") {
        Some(Value::String(text)) => convert::c_text(&text),
        _ => "ERR unknown error".to_owned(),
    };
    let line = field("line").and_then(|line| line.as_i64()).filter(|line| *line > 0);
    let place = line.map_or_else(String::new, |line| format!(" script: {sha}, on {CHUNK}:{line}."));
    RedisReply::Error(format!("{text}{place}"))
}

/// Returns the Rust functions for the sandbox.
fn server(lua: &Lua, context: &CallContext) -> mlua::Result<Table> {
    let server = lua.create_table()?;
    let of = context.clone();
    let call = lua.create_function(move |lua, args: MultiValue| {
        let reply = execute(&of, &args).map_err(errors::refused)?;
        convert::to_lua(lua, &reply)
    })?;
    let of = context.clone();
    let pcall = lua.create_function(move |lua, args: MultiValue| {
        let reply = execute(&of, &args).unwrap_or_else(RedisReply::from);
        convert::to_lua(lua, &reply)
    })?;
    server.raw_set("call", call)?;
    server.raw_set("pcall", pcall)?;
    server.raw_set("open", lua.create_function(errors::open)?)?;
    server.raw_set("line", lua.create_function(|lua, ()| Ok(errors::line(lua)))?)?;
    Ok(server)
}

fn execute(context: &CallContext, args: &MultiValue) -> CommandResult {
    if args.is_empty() {
        return Err(ErrorReply::of("ERR Please specify at least one argument for this redis lib call"));
    }
    let words: Option<Vec<Bytes>> = args.iter().map(convert::argument).collect();
    let wrong = ErrorReply::of("ERR Lua redis lib command arguments must be strings or integers");
    context.call(&words.ok_or(wrong)?)
}
