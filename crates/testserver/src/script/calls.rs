//! Commands called by scripts.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::acl::Denial;
use crate::client::ClientSession;
use crate::commands::{self, CommandCall, CommandFlags, RedisCommand};
use crate::engine::lock;
use crate::reply::{CommandResult, ErrorReply};
use crate::state::State;

/// The state of the running script.
#[derive(Debug)]
pub(super) struct RunningScript {
    /// A client with the caller's user.
    client: ClientSession,
    read_only: bool,
    allow_oom: bool,
    /// True if the memory was full when the script started.
    full: bool,
    /// True after the first write. The script may then run to its end.
    dirty: bool,
}

/// The server's state and the running script, shared by the Lua functions.
#[derive(Clone)]
pub(super) struct CallContext {
    state: Arc<Mutex<State>>,
    running: Arc<Mutex<RunningScript>>,
}

impl CallContext {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
        let running = RunningScript {
            client: ClientSession::new(0, None),
            read_only: false,
            allow_oom: false,
            full: false,
            dirty: false,
        };
        Self { state, running: Arc::new(Mutex::new(running)) }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, RunningScript> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Prepares the call of a script.
    pub(super) fn begin(&self, user: String, read_only: bool, allow_oom: bool) {
        let full = lock(&self.state).is_full();
        let client = ClientSession::new(0, Some(user));
        *self.running() = RunningScript { client, read_only, allow_oom, full, dirty: false };
    }

    pub(super) fn call(&self, args: &[Bytes]) -> CommandResult {
        let (mut running, mut state) = (self.running(), lock(&self.state));
        let command = running.admit(&state, args)?;
        running.dirty |= command.flags.has(CommandFlags::WRITE);
        command.run(&mut CommandCall { state: &mut state, client: &mut running.client, command, args })
    }
}

impl RunningScript {
    fn admit(&self, state: &State, args: &[Bytes]) -> Result<&'static RedisCommand, ErrorReply> {
        let command = commands::find(args);
        let command = command.ok_or(ErrorReply::of("ERR Unknown Redis command called from script"))?;
        if !command.takes(args.len()) {
            return Err(ErrorReply::of("ERR Wrong number of args calling Redis command from script"));
        }
        if command.flags.has(CommandFlags::NO_SCRIPT) {
            return Err(ErrorReply::of("ERR This Redis command is not allowed from script"));
        }
        let user = self.client.user.as_deref().unwrap_or_default();
        state.acl.check(user, command, args).map_err(denied)?;
        let writes = command.flags.has(CommandFlags::WRITE) || command.flags.has(CommandFlags::MAY_REPLICATE);
        if self.read_only && writes {
            return Err(ErrorReply::of("ERR Write commands are not allowed from read-only scripts."));
        }
        if self.full && !self.allow_oom && !self.dirty && command.flags.has(CommandFlags::DENY_OOM) {
            return Err(ErrorReply::OUT_OF_MEMORY);
        }
        Ok(command)
    }
}

fn denied(denial: Denial) -> ErrorReply {
    ErrorReply::of(match denial {
        Denial::Command => "ERR The user executing the script can't run this command or subcommand",
        Denial::Key => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command \
             arguments"
        }
        Denial::Channel => {
            "ERR The user executing the script can't publish to the channel mentioned in the command"
        }
    })
}
