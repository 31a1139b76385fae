//! Runs scripts: by hash, with everything that may be missing supplied.

use std::cmp::Ordering;

use redis::{Cmd, Value, cmd};

use crate::connection::{CallError, Node};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::names::{PartitionNames, WIRE_VERSION};
use crate::wire::reply::Reply;
use crate::wire::scripts::{self, Script};
use crate::wire::store::Store;

impl Store {
    /// A call of a partition script: the keys that its header names, and the prelude's arguments, ready
    /// for its own.
    pub(super) fn partition_script(&self, script: &'static Script, at: &PartitionNames) -> Cmd {
        let keys = script.keys.iter().map(|place| &at.all()[*place]);
        let mut command = self.script(script, keys);
        command.arg(WIRE_VERSION).arg(at.of).arg(&at.wake);
        command
    }

    /// A call of any script.
    pub(super) fn script<K: redis::ToRedisArgs>(
        &self,
        script: &'static Script,
        keys: impl ExactSizeIterator<Item = K>,
    ) -> Cmd {
        script_call(self.variant(script), keys)
    }

    /// Runs a partition script; creates the partition if it is new, and finds
    /// the name at fault if one holds a value of another type. The answer begins behind the server's time.
    pub(super) async fn run_at(
        &self,
        script: &'static Script,
        at: &PartitionNames,
        command: &Cmd,
    ) -> Result<Reply> {
        let node = &self.0.node;
        let mut answer = self.run_on(node, script, command).await;
        if code_of(&answer) == Some("NOMETA") {
            self.agree(at).await?;
            answer = self.run_on(node, script, command).await;
        }
        Reply::new(script.name, self.named(at, answer).await?)?.stamped()
    }

    /// Runs a script, loading it first where the server does not have it.
    /// NOSCRIPT means that nothing was executed. Should somebody flush the
    /// scripts over and over, the text goes along.
    pub(super) async fn run_on(
        &self,
        node: &Node,
        script: &'static Script,
        command: &Cmd,
    ) -> Result<Value, CallError> {
        let answer = node.call(script.name, command).await;
        if code_of(&answer) != Some("NOSCRIPT") {
            return answer;
        }
        let text = &self.variant(script).text;
        node.call("loading a script", cmd("SCRIPT").arg("LOAD").arg(text)).await?;
        let answer = node.call(script.name, command).await;
        if code_of(&answer) != Some("NOSCRIPT") {
            return answer;
        }
        node.call(script.name, &with_text(command, text)).await
    }

    /// Creates the partition's meta, but never against partition 0: a producer
    /// with another number of partitions must not make a second truth.
    pub(super) async fn agree(&self, at: &PartitionNames) -> Result<()> {
        if at.index != 0 {
            self.init(&PartitionNames::new(&at.namespace, &at.topic, 0, at.of, at.attached)).await?;
        }
        self.init(at).await
    }

    async fn init(&self, at: &PartitionNames) -> Result<()> {
        let mut command = self.script(&scripts::INIT, [at.key("meta")].into_iter());
        let kind = if at.attached { "attached" } else { "managed" };
        command.arg(WIRE_VERSION).arg(at.of).arg(kind);
        let answer = self.run_on(&self.0.node, &scripts::INIT, &command).await;
        let mut reply = Reply::new("init", self.named(at, answer).await?)?;
        let (version, of, there) = (reply.int()?, reply.int()?, reply.bytes()?);
        let (reason, message) = match version.cmp(&WIRE_VERSION.into()) {
            Ordering::Less => {
                let advice =
                    "stop what speaks it and remove its names, or give this program another namespace";
                (ErrorKind::WireVersion, made_by(at, version, "older", advice))
            }
            Ordering::Greater => {
                let advice = "upgrade this program, or give it another namespace";
                (ErrorKind::WireVersion, made_by(at, version, "newer", advice))
            }
            Ordering::Equal if of != u64::from(at.of) => {
                let message = format!(
                    "topic {} has {of} partitions in Redis, this program says {}; use the same number everywhere",
                    at.topic, at.of
                );
                (ErrorKind::Partitions, message)
            }
            Ordering::Equal if there != kind.as_bytes() => {
                let message = if at.attached {
                    "is managed by keylapse in Redis, and cannot be attached to; give one of the two another name"
                } else {
                    "is attached in Redis: other programs write its keys, and a timer is armed by writing one"
                };
                (ErrorKind::Conflict, format!("topic {} {message}", at.topic))
            }
            Ordering::Equal => return Ok(()),
        };
        Err(Error::new(reason, message))
    }

    #[cfg(feature = "testing")]
    fn variant<'a>(&'a self, script: &'a Script) -> &'a Script {
        self.0.clocked.get(script.name).unwrap_or(script)
    }

    #[cfg(not(feature = "testing"))]
    #[allow(clippy::unused_self)] // as in tests, where a store can have its own
    fn variant<'a>(&self, script: &'a Script) -> &'a Script {
        script
    }
}

/// EVALSHA with its keys, ready for its arguments.
pub(crate) fn script_call<K: redis::ToRedisArgs>(
    script: &Script,
    keys: impl ExactSizeIterator<Item = K>,
) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(&script.sha).arg(keys.len());
    keys.for_each(|key| {
        command.arg(key);
    });
    command
}

/// EVAL in place of EVALSHA.
fn with_text(command: &Cmd, text: &str) -> Cmd {
    let mut eval = cmd("EVAL");
    eval.arg(text);
    for arg in command.args_iter().skip(2) {
        if let redis::Arg::Simple(arg) = arg {
            eval.arg(arg);
        }
    }
    eval
}

fn made_by(at: &PartitionNames, version: u64, than: &str, advice: &str) -> String {
    let meta = at.key("meta");
    format!("{meta} was made by wire version {version}, {than} than this library's {WIRE_VERSION}: {advice}")
}

fn code_of(answer: &Result<Value, CallError>) -> Option<&str> {
    answer.as_ref().err()?.code.as_deref()
}
