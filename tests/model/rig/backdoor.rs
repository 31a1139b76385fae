//! What a test does to a server past the library's calls: broken data, other programs' keys.

use keylapse_wire::{RepairTarget, scripts};
use redis::{Cmd, FromRedisValue, cmd};

use super::Rig;

impl Rig {
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let answer = command.query_async(&mut self.admin.clone()).await;
        answer.unwrap_or_else(|error| panic!("the server refused: {error}"))
    }

    /// Writes a record, a state or a kept arming, or deletes it, and nothing else.
    pub(crate) async fn put_raw(&self, hash: RepairTarget, key: &[u8], value: Option<&[u8]>) {
        let name = self.at.key(hash.as_str());
        match value {
            Some(value) => self.ask(cmd("HSET").arg(name).arg(key).arg(value)).await,
            None => self.ask(cmd("HDEL").arg(name).arg(key)).await,
        }
    }

    /// How many fields a hash of the partition has.
    pub(crate) async fn length(&self, hash: &str) -> u64 {
        self.ask(cmd("HLEN").arg(self.at.key(hash))).await
    }

    /// Writes a field of the partition's meta.
    pub(crate) async fn put_meta(&self, field: &str, value: &str) {
        self.ask::<()>(cmd("HSET").arg(self.at.key("meta")).arg(field).arg(value)).await;
    }

    /// Whether there is such a key.
    pub(crate) async fn exists(&self, key: &str) -> bool {
        self.ask(cmd("EXISTS").arg(key)).await
    }

    /// Deletes keys.
    pub(crate) async fn delete(&self, keys: &[String]) {
        self.ask::<()>(cmd("DEL").arg(keys)).await;
    }

    /// Loses the index entry of a timer.
    pub(crate) async fn unindex(&self, key: &[u8]) {
        for index in ["due", "quarantine"] {
            self.ask::<()>(cmd("ZREM").arg(self.at.key(index)).arg(key)).await;
        }
    }

    /// Puts another program's value where a trigger key might go.
    pub(crate) async fn put_taken(&self, key: &str, value: &str) {
        self.ask::<()>(cmd("SET").arg(key).arg(value)).await;
    }

    /// Lets a key expire then, whoever has written it.
    pub(crate) async fn expire_at(&self, key: &str, deadline: u64) {
        self.ask::<()>(cmd("PEXPIREAT").arg(key).arg(deadline)).await;
    }

    /// What stands in a trigger key.
    pub(crate) async fn trigger(&self, key: &str) -> Option<String> {
        self.ask(cmd("GET").arg(key)).await
    }

    /// Publishes on the partition's channel, as another program might.
    pub(crate) async fn publish(&self, message: &[u8]) {
        self.ask::<()>(cmd("SPUBLISH").arg(&self.at.wake).arg(message)).await;
    }

    /// Writes a dead letter's bytes anew.
    pub(crate) async fn put_letter(&self, id: &[u8], letter: &[u8]) {
        self.ask::<()>(cmd("HSET").arg(self.at.key("dead_letters")).arg(id).arg(letter)).await;
    }

    /// Makes a canary of this test's own, as a subscription does: what it says, and whether it is new.
    pub(crate) async fn release_canary(&self, ttl_ms: u64) -> (String, bool) {
        let (text, last) = (&scripts::CANARY.text, self.last_canary());
        self.ask(cmd("EVAL").arg(text).arg(1).arg(last).arg(ttl_ms)).await
    }

    /// Ends a canary before its time.
    pub(crate) async fn drop_canary(&self, name: &str) {
        self.ask::<()>(cmd("DEL").arg(format!("{}:{name}", self.last_canary()))).await;
    }

    fn last_canary(&self) -> String {
        format!("{{heartbeat/{}}}", self.at.topic)
    }
}
