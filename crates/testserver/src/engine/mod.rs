//! The engine, which executes one command at a time.

mod gate;
mod scripts;
mod transactions;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::client::ClientSession;
use crate::clock::TestClock;
use crate::commands::{CommandCall, CommandFlags, RedisCommand};
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::script::Scripts;
use crate::state::State;

/// The state of the server and its scripts. Its lock protects the whole server.
pub(crate) struct Engine {
    /// Shared with the Lua functions that scripts call. While a script runs, only these functions lock it.
    state: Arc<Mutex<State>>,
    scripts: Scripts,
    clock: TestClock,
}

pub(crate) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn new(state: State, clock: TestClock) -> Self {
        let state = Arc::new(Mutex::new(state));
        Self { scripts: Scripts::new(state.clone()), state, clock }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Reads the clock, and deletes the expired keys that are due for deletion.
    pub(crate) fn tick(&mut self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.now_micros = self.clock.micros();
        state.expire_found();
        state
    }

    /// Executes a command and returns the reply.
    pub(crate) fn serve(&mut self, client: &mut ClientSession, args: &[Bytes]) -> RedisReply {
        self.tick().commands += 1;
        self.admit_and_run(client, args).unwrap_or_else(RedisReply::from)
    }

    fn admit_and_run(&mut self, client: &mut ClientSession, args: &[Bytes]) -> CommandResult {
        let admitted = gate::admit(&mut self.state(), client, args);
        let command = admitted.inspect_err(|_| {
            if let Some(transaction) = &mut client.transaction {
                transaction.broken = true;
            }
        });
        let command = match command {
            Err(refusal) if gate::is_exec(args) => return Err(self.abort(client, &refusal)),
            other => other?,
        };
        if let Some(transaction) =
            client.transaction.as_mut().filter(|_| !command.flags.has(CommandFlags::NOT_QUEUED))
        {
            transaction.commands.push(args.to_vec());
            return Ok(RedisReply::Status("QUEUED".into()));
        }
        self.run(client, command, args)
    }

    /// Executes a command that has passed the checks.
    fn run(
        &mut self,
        client: &mut ClientSession,
        command: &'static RedisCommand,
        args: &[Bytes],
    ) -> CommandResult {
        if command.flags.has(CommandFlags::ENGINE) {
            return self.run_here(client, command, args);
        }
        let state = &mut self.state();
        command.run(&mut CommandCall { state, client, command, args })
    }

    fn run_here(
        &mut self,
        client: &mut ClientSession,
        command: &'static RedisCommand,
        args: &[Bytes],
    ) -> CommandResult {
        match command.name {
            "multi" => Self::multi(client),
            "exec" => self.exec(client),
            "discard" => self.discard(client),
            "watch" => self.watch(client, &args[1..]),
            "unwatch" => self.unwatch(client),
            "script|load" => self.scripts.load(&args[2]).map(RedisReply::bulk),
            "script|exists" => Ok(self.scripts.exist(&args[2..])),
            "script|flush" => self.flush_scripts(&args[2..]),
            _ => self.eval(client, command, args),
        }
    }

    /// Removes a connection that has ended.
    pub(crate) fn close(&mut self, id: u64) {
        let mut state = self.state();
        state.pubsub.close(id);
        state.watches.end(id);
    }
}

fn refused(text: &'static str) -> CommandResult {
    Err(ErrorReply::of(text))
}
