//! Runs scripts: by hash, with everything that may be missing supplied.

use std::borrow::Cow;

use futures::future::join_all;
use keylapse_connection::{Cmd, Pipeline, ToRedisArgs, Value, cmd, pipe};

use crate::connection::{DESTROYING_ADVICE, REPARTITIONING_ADVICE, Server};
use crate::error::{Error, ErrorKind, Result};
use crate::names::{DESTROYING, NAMES, REPARTITIONING, WIRE_VERSION};
use crate::reply::{Reply, number};
use crate::scripts::{self, Script};
use crate::{PartitionNames, Store};

/// A call of a script, ready for its own arguments.
pub(super) struct Call<'a> {
    store: &'a Store,
    script: &'static Script,
    /// The partition that it is about, where it is about one.
    at: Option<&'a PartitionNames>,
    /// Where its keys lie.
    slot: u16,
    command: Cmd,
}

impl Store {
    /// A call of a partition script: the keys that its header names, and the prelude's arguments.
    pub(super) fn call<'a>(&'a self, script: &'static Script, at: &'a PartitionNames) -> Call<'a> {
        let mut call = self.bare_call(script, at);
        call.arg(WIRE_VERSION).arg(at.of).arg(&at.wake);
        call
    }

    /// The same without these arguments.
    pub(super) fn bare_call<'a>(&'a self, script: &'static Script, at: &'a PartitionNames) -> Call<'a> {
        let keys: Vec<_> = script.keys.iter().map(|place| &at.all()[*place]).collect();
        let command = script_call(self.variant(script), &keys);
        Call { at: Some(at), ..self.call_of(script, at.slot, command) }
    }

    /// A call of any other script. Its keys lie in one slot.
    pub(super) fn call_with<K: ToRedisArgs + AsRef<[u8]>>(
        &self,
        script: &'static Script,
        keys: &[K],
    ) -> Call<'_> {
        let slot = keys.first().map_or(0, |key| self.0.topology.slot_of(key.as_ref()));
        self.call_of(script, slot, script_call(self.variant(script), keys))
    }

    /// A call of which all is there already.
    pub(super) fn call_of(&self, script: &'static Script, slot: u16, command: Cmd) -> Call<'_> {
        Call { store: self, script, at: None, slot, command }
    }

    /// Sends one command about this key.
    pub(super) async fn send(&self, doing: &str, key: &[u8], command: &Cmd) -> Result<Value> {
        let slot = self.0.topology.slot_of(key);
        self.0.topology.at(slot, |server| async move { server.call(doing, command).await }).await
    }

    /// Sends several about this partition in one request. An error among the answers is that of all.
    pub(super) async fn send_all(
        &self,
        doing: &str,
        at: &PartitionNames,
        commands: &Pipeline,
    ) -> Result<Vec<Value>> {
        self.0.topology.at(at.slot, |server| async move { server.call_all(doing, commands).await }).await
    }

    /// Asks about a partition without a script, in one request.
    pub(super) async fn ask(
        &self,
        at: &PartitionNames,
        doing: &'static str,
        commands: &Pipeline,
    ) -> Result<Reply> {
        let answers = self.send_all(doing, at, commands).await;
        Reply::new(doing, Value::Array(self.named(at, answers).await?))
    }

    /// Creates the partition's meta, but never against partition 0: a producer
    /// with another number of partitions must not make a second truth.
    pub(super) async fn agree(&self, at: &PartitionNames) -> Result<()> {
        if at.index != 0 {
            self.init(&PartitionNames::new(&at.namespace, &at.topic, 0, at.of, at.attached)).await?;
        }
        self.init(at).await
    }

    /// The same of one that is not there.
    async fn make_again(&self, at: &PartitionNames, error: &Error) -> Result<()> {
        let was_there = self.knows(at);
        self.agree(at).await?;
        if was_there {
            self.say_gone(at, error);
        }
        Ok(())
    }

    /// Creates the partition's meta; refused if there is one that says something else.
    pub(super) async fn init(&self, at: &PartitionNames) -> Result<()> {
        let mut call = self.call_with(&scripts::INIT, &[at.key("meta")]);
        let answer = call.arg(WIRE_VERSION).arg(at.of).arg(at.kind()).run_once().await;
        let mut reply = Reply::new("init", self.named(at, answer).await?)?;
        let (version, of, there) = (reply.bytes()?, reply.int()?, reply.bytes()?);
        if version == DESTROYING.as_bytes() {
            let message = format!("topic {} is being destroyed{DESTROYING_ADVICE}", at.topic);
            return Err(Error::new(ErrorKind::Destroying, message));
        }
        if version == REPARTITIONING.as_bytes() {
            let message =
                format!("topic {} gets another number of partitions{REPARTITIONING_ADVICE}", at.topic);
            return Err(Error::new(ErrorKind::Repartitioning, message));
        }
        let version = number(&version).ok_or_else(|| reply.unexpected())?;
        if version != u64::from(WIRE_VERSION) {
            let (than, advice) = if version < u64::from(WIRE_VERSION) {
                ("older", "stop what speaks it and remove its names, or give this program another namespace")
            } else {
                ("newer", "upgrade this program, or give it another namespace")
            };
            let message = format!(
                "{} was made by wire version {version}, {than} than this library's {WIRE_VERSION}: {advice}",
                at.key("meta")
            );
            return Err(Error::new(ErrorKind::WireVersion, message));
        }
        if of != u64::from(at.of) {
            let message = format!(
                "topic {} has {of} partitions in Redis, this program says {}; use the same number everywhere: \
                 start this program with the topic's `.partitions({of})`",
                at.topic, at.of
            );
            return Err(Error::new(ErrorKind::Partitions, message));
        }
        at.check_kind(&there)?;
        self.note_made(at);
        Ok(())
    }

    /// An answer about a partition. The server says WRONGTYPE, but not where: then, with the name of the
    /// key that holds a value of another type.
    async fn named<T>(&self, at: &PartitionNames, answer: Result<T>) -> Result<T> {
        match answer {
            Err(error) if error.kind() == ErrorKind::WrongType => {
                Err(self.name_at_fault(at).await.unwrap_or(error))
            }
            other => other,
        }
    }

    async fn name_at_fault(&self, at: &PartitionNames) -> Option<Error> {
        let mut types = pipe();
        at.all().iter().for_each(|name| {
            types.cmd("TYPE").arg(name);
        });
        let found = self.send_all("looking for the wrong type", at, &types).await.ok()?;
        at.all().iter().zip(NAMES).zip(found).find_map(|((name, (_, expected)), found)| match found {
            Value::SimpleString(found) if found != "none" && found != expected => {
                Some(wrong_type(name, expected, &found))
            }
            _ => None,
        })
    }

    fn variant<'a>(&'a self, script: &'a Script) -> &'a Script {
        self.0.clocked.get(script.name).unwrap_or(script)
    }
}

impl Call<'_> {
    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Runs the script. Creates the partition if it is new, and finds the name at fault if one holds a
    /// value of another type.
    pub(super) async fn run(&self) -> Result<Value> {
        let mut answer = self.run_once().await;
        let Some(at) = self.at else { return answer };
        if let Some(error) = answer.as_ref().err().filter(|error| error.code() == Some("NOMETA")) {
            self.store.make_again(at, error).await?;
            self.store.list_anew(at).await;
            self.store.journal_anew(at).await;
            answer = self.run_once().await;
        }
        self.store.named(at, answer).await
    }

    /// Runs several scripts of one store, in one request for each server. What may be missing is supplied to each by
    /// itself.
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

    /// The same, where the answer begins with the server's time.
    pub(super) async fn reply(&self) -> Result<Reply> {
        self.plain_reply().await?.stamped()
    }

    /// The same; none where the partition is not there, which is left so.
    pub(super) async fn reply_if_made(&self) -> Result<Option<Reply>> {
        let answer = self.run_once().await;
        if code_of(&answer) == Some("NOMETA") {
            return Ok(None);
        }
        let answer = match self.at {
            Some(at) => self.store.named(at, answer).await?,
            None => answer?,
        };
        Reply::new(self.script.name, answer)?.stamped().map(Some)
    }

    /// The same, where it does not.
    pub(super) async fn plain_reply(&self) -> Result<Reply> {
        Reply::new(self.script.name, self.run().await?)
    }

    /// Runs the script where its keys lie.
    pub(super) async fn run_once(&self) -> Result<Value> {
        self.store.0.topology.at(self.slot, |server| async move { self.run_on(&server).await }).await
    }

    /// Runs the script there. NOSCRIPT means that nothing was executed: then its text goes along, and the server keeps it.
    /// Not by SCRIPT LOAD, which is one more request, and which some proxies refuse.
    pub(super) async fn run_on(&self, server: &Server) -> Result<Value> {
        let (name, script) = (self.script.name, self.store.variant(self.script));
        let mut command = Cow::Borrowed(&self.command);
        let mut answer = server.call(name, &command).await;
        // Who may only read the keys may do so in a script that promises no more.
        if self.script.reads_only && code_of(&answer) == Some("NOPERM") {
            command = Cow::Owned(behind("EVALSHA_RO", &script.sha, &self.command));
            answer = server.call(name, &command).await;
        }
        if code_of(&answer) == Some("NOSCRIPT") {
            let by = if matches!(command, Cow::Owned(_)) { "EVAL_RO" } else { "EVAL" };
            answer = server.call(name, &behind(by, &script.text, &self.command)).await;
        }
        answer
    }
}

/// EVALSHA with its keys, ready for its arguments.
pub fn script_call(script: &Script, keys: &[impl ToRedisArgs]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(&script.sha).arg(keys.len()).arg(keys);
    command
}

/// The same call by the script's text: for a server that does not have it, and then keeps it.
pub fn call_by_text(script: &Script, command: &Cmd) -> Cmd {
    behind("EVAL", &script.text, command)
}

/// The same call by another command, and by what names the script there: its hash or its text.
fn behind(by: &str, script: &str, command: &Cmd) -> Cmd {
    let mut eval = cmd(by);
    eval.arg(script);
    for arg in command.args_iter().skip(2) {
        if let keylapse_connection::Arg::Simple(arg) = arg {
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
        "WRONGTYPE: a {found} stands where keylapse keeps a {expected}; \
         move or delete it (something else writes to keylapse's names)"
    );
    Error::new(ErrorKind::WrongType, message).at_key(name.as_bytes())
}
