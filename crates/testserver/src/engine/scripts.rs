//! EVAL, EVALSHA, their read-only variants, and SCRIPT FLUSH.

use bytes::Bytes;

use super::Engine;
use crate::client::ClientSession;
use crate::commands::RedisCommand;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::script::ScriptInvocation;

impl Engine {
    pub(super) fn eval(
        &mut self,
        client: &ClientSession,
        command: &RedisCommand,
        args: &[Bytes],
    ) -> CommandResult {
        let (by_sha, reading) = (command.name.starts_with("evalsha"), command.name.ends_with("_ro"));
        let keys = key_count(args)?;
        let sha = match by_sha {
            true => String::from_utf8_lossy(&args[1]).to_ascii_lowercase(),
            false => self.scripts.load(&args[1])?,
        };
        let (keys, args) = args[3..].split_at(keys);
        let user = client.user.clone().unwrap_or_default();
        self.scripts.run(&sha, ScriptInvocation { user, reading, keys, args })
    }

    pub(super) fn flush_scripts(&mut self, options: &[Bytes]) -> CommandResult {
        let known = |word: &Bytes| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
        if options.len() > 1 || !options.iter().all(known) {
            return Err(ErrorReply::of("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
        }
        self.scripts.flush();
        Ok(RedisReply::OK)
    }
}

fn key_count(args: &[Bytes]) -> Result<usize, ErrorReply> {
    let count = number::integer(&args[2]).ok_or(ErrorReply::NOT_AN_INTEGER)?;
    let count = usize::try_from(count).map_err(|_| ErrorReply::of("ERR Number of keys can't be negative"))?;
    if count > args.len() - 3 {
        return Err(ErrorReply::of("ERR Number of keys can't be greater than number of args"));
    }
    Ok(count)
}
