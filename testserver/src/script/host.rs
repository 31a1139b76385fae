//! The Lua state.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use super::calls::Desk;
use super::{Run, Script, convert, libraries, sha_of};
use crate::reply::{Answer, Refusal, Reply};
use crate::resp::Protocol;
use crate::state::State;

/// The name of a script's text, in messages of Lua.
const CHUNK: &str = "@user_script";
/// How far up the stack the script is looked for that an error came from.
const FRAMES: usize = 16;

/// A Lua state in which scripts are compiled and run.
pub(super) struct Host {
    lua: Lua,
    desk: Desk,
    globals: Table,
    environment: Table,
    run: Function,
}

impl Host {
    pub(super) fn new(state: Arc<Mutex<State>>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let desk = Desk::new(state);
        let server = server(&lua, &desk)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        let (globals, environment, run) = sandbox.call((server, libraries::all(&lua)?))?;
        Ok(Self { lua, desk, globals, environment, run })
    }

    pub(super) fn compile(&mut self, body: &[u8]) -> Result<Function, Refusal> {
        let chunk = self.lua.load(body).set_name(CHUNK).set_mode(ChunkMode::Text);
        let compiled = chunk.set_environment(self.environment.clone()).into_function();
        compiled.map_err(|error| {
            let message = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            format!("ERR Error compiling script (new function): {message}").into()
        })
    }

    pub(super) fn run(&mut self, sha: &str, script: &Script, run: Run<'_>) -> Answer {
        let read_only = run.reading || script.shebang.no_writes;
        self.desk.begin(run.user, read_only, script.shebang.allow_oom);
        let done = self.call(&script.function, run.keys, run.args);
        let (fine, value) =
            done.map_err(|error| Refusal::from(format!("ERR Error running script {sha}: {error}")))?;
        let reply = if fine { convert::from_lua(&value, 0) } else { Ok(failure(&value, sha)) };
        reply.map_err(|error| format!("ERR Error running script {sha}: {error}").into())
    }

    fn call(&self, script: &Function, keys: &[Bytes], args: &[Bytes]) -> mlua::Result<(bool, Value)> {
        self.globals.raw_set("KEYS", self.strings(keys)?)?;
        self.globals.raw_set("ARGV", self.strings(args)?)?;
        self.run.call(script)
    }

    fn strings(&self, words: &[Bytes]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for (at, word) in words.iter().enumerate() {
            table.raw_seti(at + 1, self.lua.create_string(word)?)?;
        }
        Ok(table)
    }
}

/// What the server says of an error that a script has not caught.
fn failure(value: &Value, sha: &str) -> Reply {
    let field = |name: &str| value.as_table().and_then(|table| table.raw_get::<Value>(name).ok());
    let text = match field("err") {
        Some(Value::String(text)) => text.to_string_lossy(),
        _ => "ERR unknown error".to_owned(),
    };
    let line = field("line").and_then(|line| line.as_i64()).filter(|line| *line > 0);
    let place = line.map_or_else(String::new, |line| format!(" script: {sha}, on {CHUNK}:{line}."));
    Reply::Error(format!("{text}{place}"))
}

/// Functions that only the sandbox sees.
fn server(lua: &Lua, desk: &Desk) -> mlua::Result<Table> {
    let server = lua.create_table()?;
    let of = desk.clone();
    let call = lua.create_function(move |lua, args: MultiValue| {
        answered(lua, &of, args.iter().map(convert::argument).collect())
    })?;
    let of = desk.clone();
    let call_many = lua.create_function(move |lua, (args, count): (Table, usize)| {
        // One by one: Lua holds only some thousands of values at once for what is not Lua.
        let words = (1..=count).map(|at| Ok(convert::argument(&args.raw_get(at)?)));
        let words: mlua::Result<Option<Vec<Bytes>>> = words.collect();
        answered(lua, &of, words?)
    })?;
    let of = desk.clone();
    let speak = lua.create_function(move |_, version: f64| {
        of.speak(if version == 3.0 { Protocol::Resp3 } else { Protocol::Resp2 });
        Ok(())
    })?;
    server.raw_set("call", call)?;
    server.raw_set("call_many", call_many)?;
    server.raw_set("speak", speak)?;
    server
        .raw_set("sha1hex", lua.create_function(|_, text: mlua::LuaString| Ok(sha_of(&text.as_bytes())))?)?;
    server.raw_set("line", lua.create_function(|lua, ()| Ok(line(lua)))?)?;
    Ok(server)
}

/// The line of the script that is nearest on the stack.
fn line(lua: &Lua) -> Option<usize> {
    (1..FRAMES).find_map(|level| {
        let found = lua.inspect_stack(level, |frame| {
            let ours = frame.source().source.is_some_and(|source| source == CHUNK);
            frame.current_line().filter(|_| ours)
        });
        found.flatten()
    })
}

/// Executes a command: what went wrong, and the answer.
fn answered(lua: &Lua, desk: &Desk, args: Option<Vec<Bytes>>) -> mlua::Result<(Value, Value)> {
    let answer = match args {
        None => Err(Refusal::of("ERR Lua redis lib command arguments must be strings or integers")),
        Some(args) if args.is_empty() => {
            Err(Refusal::of("ERR Please specify at least one argument for this redis lib call"))
        }
        Some(args) => desk.call(&args),
    };
    Ok(match answer {
        Ok(reply) => (Value::Nil, convert::to_lua(lua, &reply, desk.protocol())?),
        Err(refusal) => (convert::to_lua(lua, &Reply::from(refusal), Protocol::Resp2)?, Value::Nil),
    })
}
