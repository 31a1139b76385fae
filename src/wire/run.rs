//! Runs scripts: by hash, with everything that may be missing supplied.

use redis::{Cmd, Value, cmd};

use crate::wire::reply::Reply;
use crate::wire::scripts;
use crate::wire::scripts::Script;
use crate::wire::store::{Inner, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::names::{Partition, WIRE_VERSION};
use crate::connection::node::{Failed, Node};

impl Store {
    /// An EVALSHA of a partition script: with the prelude's arguments, ready
    /// for its own.
    pub(super) fn partition_script(&self, script: &'static Script, at: &Partition, keys: &[&str]) -> Cmd {
        let mut command = self.script(script, keys.iter());
        command.arg(WIRE_VERSION).arg(at.of).arg(&at.wake);
        command
    }

    /// An EVALSHA of any script.
    pub(super) fn script<K: redis::ToRedisArgs>(
        &self,
        script: &'static Script,
        keys: impl ExactSizeIterator<Item = K>,
    ) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.0.variant(script).sha).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        command
    }

    /// Runs a partition script; creates the partition if it is new, and finds
    /// the name at fault if one holds a value of another type.
    pub(super) async fn run_at(
        &self,
        script: &'static Script,
        at: &Partition,
        command: &Cmd,
    ) -> Result<Reply> {
        let node = &self.0.node;
        let mut answer = self.run_on(node, script, command).await;
        if code_of(&answer) == Some("NOMETA") {
            self.agree(at).await?;
            answer = self.run_on(node, script, command).await;
        }
        Reply::new(script.name, self.named(at, answer).await?)
    }

    /// Runs a script, loading it first where the server does not have it.
    /// NOSCRIPT means that nothing was executed. Should somebody flush the
    /// scripts over and over, the text goes along.
    pub(super) async fn run_on(
        &self,
        node: &Node,
        script: &'static Script,
        command: &Cmd,
    ) -> Result<Value, Failed> {
        let answer = node.call(script.name, command).await;
        if code_of(&answer) != Some("NOSCRIPT") {
            return answer;
        }
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.0.variant(script).text);
        node.call("loading a script", &load).await?;
        let answer = node.call(script.name, command).await;
        if code_of(&answer) != Some("NOSCRIPT") {
            return answer;
        }
        node.call(script.name, &with_text(command, &self.0.variant(script).text)).await
    }

    /// Creates the partition's meta, but never against partition 0: a producer
    /// with another number of partitions must not make a second truth.
    pub(super) async fn agree(&self, at: &Partition) -> Result<()> {
        if at.index != 0 {
            self.init(&Partition::of_kind(&at.namespace, &at.topic, 0, at.of, at.attached)).await?;
        }
        self.init(at).await
    }

    async fn init(&self, at: &Partition) -> Result<()> {
        let mut command = self.script(&scripts::INIT, [&at.meta].into_iter());
        let kind = if at.attached { "attached" } else { "managed" };
        command.arg(WIRE_VERSION).arg(at.of).arg(kind);
        let answer = self.run_on(&self.0.node, &scripts::INIT, &command).await;
        let mut reply = Reply::new("init", self.named(at, answer).await?)?;
        let (version, of, there) = (reply.int()?, reply.int()?, reply.bytes()?);
        if version != u64::from(WIRE_VERSION) {
            return Err(Error::new(
                ErrorKind::WireVersion,
                format!("{} was made by wire version {version}, this library speaks {WIRE_VERSION}", at.meta),
            ));
        }
        if of != u64::from(at.of) {
            return Err(Error::new(
                ErrorKind::Partitions,
                format!(
                    "topic {} has {of} partitions in Redis, this program says {}; use the same number everywhere",
                    at.topic, at.of
                ),
            ));
        }
        if there != kind.as_bytes() {
            let message = if at.attached {
                "is managed by keylapse in Redis, and cannot be attached to; give one of the two another name"
            } else {
                "is attached in Redis: other programs write its keys, and a timer is armed by writing one"
            };
            return Err(Error::new(ErrorKind::Conflict, format!("topic {} {message}", at.topic)));
        }
        Ok(())
    }
}

impl Inner {
    fn variant<'a>(&'a self, script: &'static Script) -> &'a Script {
        self.clock.as_ref().and_then(|clocked| clocked.0.get(script.name)).unwrap_or(script)
    }
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

fn code_of(answer: &Result<Value, Failed>) -> Option<&str> {
    answer.as_ref().err()?.code.as_deref()
}
