//! Runs scripts by their hash, supplies missing scripts and partitions, and reads the replies.

use std::borrow::Cow;

use bytes::Bytes;
use futures::future::join_all;
use keylapse_connection::{Arg, Cmd, Pipeline, ToRedisArgs, Value, cmd, pipe};

use crate::connection::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ArmingId;
use crate::names::{NAMES, WIRE_VERSION};
use crate::scripts::Script;
use crate::time::ServerTime;
use crate::{PartitionNames, Store};

/// A call of a script, to which the script's own arguments are added.
pub(super) struct ScriptCall<'a> {
    store: &'a Store,
    script: &'static Script,
    /// The partition that the call belongs to, if it belongs to one.
    at: Option<&'a PartitionNames>,
    /// The slot of the keys.
    slot: u16,
    command: Cmd,
}

impl Store {
    /// Creates a call of a partition script, with the keys that its header names and the prelude's arguments.
    pub(super) fn call<'a>(&'a self, script: &'static Script, at: &'a PartitionNames) -> ScriptCall<'a> {
        let mut call = self.bare_call(script, at);
        call.arg(WIRE_VERSION).arg(at.partitions).arg(&at.wake);
        call
    }

    /// Creates a call of a partition script, with the keys that its header names and no arguments.
    pub(super) fn bare_call<'a>(&'a self, script: &'static Script, at: &'a PartitionNames) -> ScriptCall<'a> {
        let keys: Vec<_> = script.keys.iter().map(|place| &at.all()[*place]).collect();
        let command = script_call(self.clocked_script(script), &keys);
        ScriptCall { at: Some(at), ..self.call_of(script, at.slot, command) }
    }

    /// Creates a call of any other script. The keys must be in one slot.
    pub(super) fn call_with<K: ToRedisArgs + AsRef<[u8]>>(
        &self,
        script: &'static Script,
        keys: &[K],
    ) -> ScriptCall<'_> {
        let slot = keys.first().map_or(0, |key| self.0.topology.slot_of(key.as_ref()));
        self.call_of(script, slot, script_call(self.clocked_script(script), keys))
    }

    /// Creates a call from a complete command.
    pub(super) fn call_of(&self, script: &'static Script, slot: u16, command: Cmd) -> ScriptCall<'_> {
        ScriptCall { store: self, script, at: None, slot, command }
    }

    /// Sends a command to the server of this key.
    pub(super) async fn send(&self, doing: &str, key: &[u8], command: &Cmd) -> Result<Value> {
        let slot = self.0.topology.slot_of(key);
        self.0.topology.at(slot, |server| async move { server.call(doing, command).await }).await
    }

    /// Sends commands to the server of a partition in one request. Fails if any command fails.
    pub(super) async fn send_all(
        &self,
        doing: &str,
        at: &PartitionNames,
        commands: &Pipeline,
    ) -> Result<Vec<Value>> {
        self.0.topology.at(at.slot, |server| async move { server.call_all(doing, commands).await }).await
    }

    /// Reads from a partition without a script, in one request.
    pub(super) async fn query_partition(
        &self,
        at: &PartitionNames,
        doing: &'static str,
        commands: &Pipeline,
    ) -> Result<Reply> {
        let answers = self.send_all(doing, at, commands).await;
        Reply::new(doing, Value::Array(self.explain_wrong_type(at, answers).await?))
    }

    /// Passes on an answer about a partition. To a WRONGTYPE error it adds the name of the key, which the server leaves out.
    pub(crate) async fn explain_wrong_type<T>(&self, at: &PartitionNames, answer: Result<T>) -> Result<T> {
        match answer {
            Err(error) if error.kind() == ErrorKind::WrongType => {
                Err(self.find_wrong_type(at).await.unwrap_or(error))
            }
            other => other,
        }
    }

    async fn find_wrong_type(&self, at: &PartitionNames) -> Option<Error> {
        let mut types = pipe();
        at.all().iter().for_each(|name| {
            types.cmd("TYPE").arg(name);
        });
        let found = self.send_all("finding the key of a wrong type", at, &types).await.ok()?;
        at.all().iter().zip(NAMES).zip(found).find_map(|((name, (_, expected)), found)| match found {
            Value::SimpleString(found) if found != "none" && found != expected => {
                Some(wrong_type(name, expected, &found))
            }
            _ => None,
        })
    }

    fn clocked_script<'a>(&'a self, script: &'a Script) -> &'a Script {
        self.0.clocked.get(script.name).unwrap_or(script)
    }
}

impl ScriptCall<'_> {
    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Runs the script. Creates the partition if it is missing, and adds the name of the key to a WRONGTYPE error.
    pub(super) async fn run(&self) -> Result<Value> {
        let mut answer = self.run_once().await;
        let Some(at) = self.at else { return answer };
        if let Some(error) = answer.as_ref().err().filter(|error| error.code() == Some("NOMETA")) {
            self.store.recreate_partition(at, error).await?;
            self.store.register_again(at).await;
            self.store.restore_journal_limits(at).await;
            answer = self.run_once().await;
        }
        self.store.explain_wrong_type(at, answer).await
    }

    /// Runs several scripts of one store, in one request for each server. A call that lacks its script or its partition, or
    /// that is refused, runs again on its own as [`run`](Self::run) does.
    pub(super) async fn run_all(calls: &[Self]) -> Vec<Result<Value>> {
        if let [only] = calls {
            return vec![only.run().await];
        }
        let Some(first) = calls.first() else { return Vec::new() };
        let commands = calls.iter().map(|call| (call.slot, call.command.clone())).collect();
        let answers = first.store.0.topology.each(first.script.name, commands).await;
        let supplied = calls.iter().zip(answers).map(async |(call, answer)| match code_of(&answer) {
            Some("NOSCRIPT" | "NOMETA" | "WRONGTYPE") => call.run().await,
            Some("NOPERM") if call.script.reads_only => call.run().await,
            _ => answer,
        });
        join_all(supplied).await
    }

    /// Runs the script as [`run`](Self::run) does, and reads a reply that begins with the server's time.
    pub(super) async fn reply(&self) -> Result<Reply> {
        self.plain_reply().await?.stamped()
    }

    /// Runs the script and reads a reply that begins with the server's time. Returns `None` for a missing partition, which
    /// it does not create.
    pub(super) async fn reply_if_made(&self) -> Result<Option<Reply>> {
        let answer = self.run_once().await;
        if code_of(&answer) == Some("NOMETA") {
            return Ok(None);
        }
        let answer = match self.at {
            Some(at) => self.store.explain_wrong_type(at, answer).await?,
            None => answer?,
        };
        Reply::new(self.script.name, answer)?.stamped().map(Some)
    }

    /// Runs the script as [`run`](Self::run) does, and reads a reply without the server's time.
    pub(super) async fn plain_reply(&self) -> Result<Reply> {
        Reply::new(self.script.name, self.run().await?)
    }

    /// Runs the script once, on the server of its keys.
    pub(super) async fn run_once(&self) -> Result<Value> {
        self.store.0.topology.at(self.slot, |server| async move { self.run_on(&server).await }).await
    }

    /// Runs the script on this server. NOSCRIPT means that nothing was executed. Then the whole text is sent, which the
    /// server caches. SCRIPT LOAD would cost one more request, and some proxies refuse it.
    pub(super) async fn run_on(&self, server: &Server) -> Result<Value> {
        let (name, script) = (self.script.name, self.store.clocked_script(self.script));
        let mut command = Cow::Borrowed(&self.command);
        let mut answer = server.call(name, &command).await;
        // A user with the right to read the keys alone may run read-only scripts by another command.
        if self.script.reads_only && code_of(&answer) == Some("NOPERM") {
            command = Cow::Owned(rewrite_call("EVALSHA_RO", &script.sha, &self.command));
            answer = server.call(name, &command).await;
        }
        if code_of(&answer) == Some("NOSCRIPT") {
            let by = if matches!(command, Cow::Owned(_)) { "EVAL_RO" } else { "EVAL" };
            answer = server.call(name, &rewrite_call(by, &script.text, &self.command)).await;
        }
        answer
    }
}

/// Creates an EVALSHA command with its keys, to which arguments are added.
pub fn script_call(script: &Script, keys: &[impl ToRedisArgs]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(&script.sha).arg(keys.len()).arg(keys);
    command
}

/// Converts an EVALSHA command to EVAL with the script's text, for a server that has not cached the script.
pub fn call_by_text(script: &Script, command: &Cmd) -> Cmd {
    rewrite_call("EVAL", &script.text, command)
}

/// Converts a script call to another command, which names the script by its hash or its text.
fn rewrite_call(by: &str, script: &str, command: &Cmd) -> Cmd {
    let mut eval = cmd(by);
    eval.arg(script);
    for arg in command.args_iter().skip(2) {
        if let Arg::Simple(arg) = arg {
            eval.arg(arg);
        }
    }
    eval
}

fn code_of(answer: &Result<Value>) -> Option<&str> {
    answer.as_ref().err()?.code()
}

fn wrong_type(name: &str, expected: &str, found: &str) -> Error {
    let message = format!(
        "WRONGTYPE: the key holds a {found} where keylapse keeps a {expected}: \
         move or delete it (another program writes to keylapse's names)"
    );
    Error::new(ErrorKind::WrongType, message).at_key(name.as_bytes())
}

/// The elements of an array reply, read one by one.
#[derive(Debug)]
pub struct Reply {
    script: &'static str,
    /// The server's time, if the reply began with it.
    pub(super) stamp: ServerTime,
    rest: std::vec::IntoIter<Value>,
}

impl Reply {
    /// Wraps the reply of this script.
    ///
    /// # Errors
    /// If the reply is not an array.
    pub fn new(script: &'static str, value: Value) -> Result<Self> {
        let Value::Array(items) = value else { return Err(unexpected(script)) };
        Ok(Self { script, stamp: ServerTime::default(), rest: items.into_iter() })
    }

    /// Reads the server's time from the front.
    pub fn stamped(mut self) -> Result<Self> {
        self.stamp = ServerTime::new(self.int()?, self.int()?);
        Ok(self)
    }

    /// Reads all remaining elements.
    pub(super) fn each<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.rest.len());
        while self.rest.len() > 0 {
            all.push(read(self)?);
        }
        Ok(all)
    }

    /// Reads a code, and returns the value at this position of `all`.
    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T> {
        let place = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        all.get(place).copied().ok_or_else(|| self.unexpected())
    }

    /// Reads the remaining codes, which must be `count`.
    pub(super) fn codes<T: Copy>(&mut self, count: usize, all: &[T]) -> Result<Vec<T>> {
        let codes = self.each(|reply| reply.one_of(all))?;
        if codes.len() == count { Ok(codes) } else { Err(self.unexpected()) }
    }

    /// Reads the next element. Fails if it is missing, or if `read` returns `None`.
    fn next<T>(&mut self, read: impl FnOnce(Value) -> Option<T>) -> Result<T> {
        self.rest.next().and_then(read).ok_or_else(|| self.unexpected())
    }

    /// Reads a whole number, or the whole part of a score, which is a string.
    pub(super) fn int(&mut self) -> Result<u64> {
        self.maybe_int()?.ok_or_else(|| self.unexpected())
    }

    /// Reads a whole number; `None` for nil, and for text that is not a number.
    pub(super) fn maybe_int(&mut self) -> Result<Option<u64>> {
        self.next(|value| match value {
            Value::Nil => Some(None),
            Value::Int(n) => u64::try_from(n).ok().map(Some),
            Value::BulkString(text) => Some(number(&text)),
            _ => None,
        })
    }

    /// Reads a whole number that may be negative.
    pub(super) fn signed(&mut self) -> Result<i64> {
        self.next(|value| if let Value::Int(n) = value { Some(n) } else { None })
    }

    /// Reads a number. Scores are text from scripts and in RESP2, and floats in RESP3.
    pub(super) fn float(&mut self) -> Result<f64> {
        self.maybe_float()?.ok_or_else(|| self.unexpected())
    }

    /// Reads a number; `None` for nil.
    pub(super) fn maybe_float(&mut self) -> Result<Option<f64>> {
        self.next(|value| match value {
            Value::Nil => Some(None),
            Value::Double(score) => Some(Some(score)),
            Value::Int(whole) => Some(Some(whole as f64)),
            Value::BulkString(text) => std::str::from_utf8(&text).ok()?.parse().ok().map(Some),
            _ => None,
        })
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        self.maybe_bytes()?.ok_or_else(|| self.unexpected())
    }

    pub(super) fn maybe_bytes(&mut self) -> Result<Option<Bytes>> {
        self.next(|value| match value {
            Value::Nil => Some(None),
            Value::BulkString(bytes) => Some(Some(bytes.into())),
            Value::SimpleString(text) => Some(Some(text.into())),
            _ => None,
        })
    }

    /// Reads text; `None` if it is empty.
    pub fn maybe_text(&mut self) -> Result<Option<String>> {
        let bytes = self.bytes()?;
        Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn arming(&mut self) -> Result<Option<ArmingId>> {
        Ok(ArmingId::from_bytes(&self.bytes()?))
    }

    pub(super) fn list(&mut self) -> Result<Self> {
        let script = self.script;
        self.next(|value| Self::new(script, value).ok())
    }

    /// Reads the score of the first member, if there is one. RESP3 sends a pair with a float, RESP2 two texts.
    pub(super) fn first_score(&mut self) -> Result<Option<u64>> {
        let mut members = self.list()?.rest;
        let score = match members.next() {
            None => return Ok(None),
            Some(Value::Array(pair)) => pair.into_iter().nth(1),
            Some(_) => members.next(),
        };
        match score {
            Some(Value::Double(score)) => Ok(number(score.to_string().as_bytes())),
            Some(Value::BulkString(score)) => Ok(number(&score)),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn unexpected(&self) -> Error {
        unexpected(self.script)
    }
}

/// Parses the whole part of a score.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(whole) = text.parse() {
        return Some(whole);
    }
    let float: f64 = text.parse().ok()?;
    // Another program may have written a negative or infinite score. `as` saturates: the timer is due now, or never.
    (!float.is_nan()).then_some(float as u64)
}

pub(super) fn unexpected(script: &'static str) -> Error {
    Error::new(
        ErrorKind::Server,
        format!("{script}: unexpected reply: does another program write to keylapse's names?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_cut_to_whole_milliseconds() {
        assert_eq!(number(b"1700000000000.5009765625"), Some(1_700_000_000_000));
        assert_eq!(number(b"1.7e3"), Some(1700));
        assert_eq!(number(b"-3"), Some(0));
        assert_eq!(number(b"inf"), Some(u64::MAX));
        assert_eq!(number(b"nan"), None);
        assert_eq!(number(b""), None);
    }
}
