//! The state of the server, which commands read and change.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::acl::Acl;
use crate::config::Config;
use crate::events::EventClass;
use crate::keyspace::{Entry, Keyspace};
use crate::pubsub::PubSub;
use crate::random::Random;
use crate::reply::ErrorReply;
use crate::value::{StoredValue, Typed};

/// The memory of an empty server, in bytes.
const BASE_MEMORY: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) keys: Keyspace,
    pub(crate) pubsub: PubSub,
    pub(crate) config: Config,
    pub(crate) acl: Acl,
    pub(crate) random: Random,
    pub(crate) watches: Watches,
    /// The time in µs since 1970. It does not change during a command, a script or a transaction.
    pub(crate) now_micros: u64,
    pub(crate) started_micros: u64,
    pub(crate) expired: u64,
    pub(crate) commands: u64,
}

impl State {
    pub(crate) fn new(keys: Keyspace, random: Random, now_micros: u64) -> Self {
        Self {
            keys,
            pubsub: PubSub::default(),
            config: Config::default(),
            acl: Acl::default(),
            random,
            watches: Watches::default(),
            now_micros,
            started_micros: now_micros,
            expired: 0,
            commands: 0,
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_micros / 1000
    }

    /// Marks a key as changed for WATCH, and publishes the event if its class is on.
    pub(crate) fn notify(&mut self, class: EventClass, event: &str, key: &Bytes) {
        self.watches.changed(key);
        let flags = self.config.events;
        if !flags.has(class) {
            return;
        }
        if flags.by_key() {
            self.pubsub.publish(&[b"__keyspace@0__:", &key[..]].concat(), event.as_bytes());
        }
        if flags.by_event() {
            self.pubsub.publish(format!("__keyevent@0__:{event}").as_bytes(), key);
        }
    }

    /// Returns whether the deadline of the key has passed. A key still exists in the millisecond of its deadline.
    pub(crate) fn is_expired(&self, entry: &Entry) -> bool {
        entry.expires().is_some_and(|at| self.now_ms() > at)
    }

    /// Returns whether the key exists. If it has expired, it is deleted.
    pub(crate) fn has(&mut self, key: &Bytes) -> bool {
        match self.keys.get(key) {
            Some(entry) if self.is_expired(entry) => {
                self.expire(key);
                false
            }
            found => found.is_some(),
        }
    }

    fn expire(&mut self, key: &Bytes) {
        self.keys.remove(key);
        self.expired += 1;
        self.notify(EventClass::EXPIRED, "expired", key);
    }

    /// Deletes the expired keys that are due for deletion.
    pub(crate) fn expire_found(&mut self) {
        while let Some(key) = self.keys.found_by(self.now_micros) {
            self.expire(&key);
        }
    }

    pub(crate) fn entry(&mut self, key: &Bytes) -> Option<&Entry> {
        if self.has(key) { self.keys.get(key) } else { None }
    }

    pub(crate) fn value(&mut self, key: &Bytes) -> Option<&mut StoredValue> {
        if self.has(key) { self.keys.value_mut(key) } else { None }
    }

    /// Returns the value of the key, or an error if it has another type.
    pub(crate) fn get<T: Typed>(&mut self, key: &Bytes) -> Result<Option<&mut T>, ErrorReply> {
        self.value(key).map(|value| T::of(value).ok_or(ErrorReply::WRONG_TYPE)).transpose()
    }

    /// Returns the value of the key, or an error if it has another type. Creates an empty value if the key does not exist.
    pub(crate) fn get_or_create<T: Typed>(&mut self, key: &Bytes) -> Result<&mut T, ErrorReply> {
        if !self.has(key) {
            self.put(key, T::empty());
        }
        self.keys.value_mut(key).and_then(T::of).ok_or(ErrorReply::WRONG_TYPE)
    }

    /// Sets a value without an expiry.
    pub(crate) fn put(&mut self, key: &Bytes, value: StoredValue) {
        if self.keys.put(key, value) {
            self.notify(EventClass::NEW, "new", key);
        }
    }

    /// Deletes a key, and returns whether it existed.
    pub(crate) fn delete(&mut self, key: &Bytes) -> bool {
        let existed = self.has(key);
        if existed {
            self.keys.remove(key);
            self.notify(EventClass::GENERIC, "del", key);
        }
        existed
    }

    /// Deletes a key whose value has no elements.
    pub(crate) fn delete_if_empty(&mut self, key: &Bytes) {
        if self.keys.get(key).is_some_and(|entry| entry.value.is_empty()) {
            self.delete(key);
        }
    }

    pub(crate) fn memory(&self) -> usize {
        BASE_MEMORY + self.keys.size()
    }

    /// Returns whether commands that need memory are refused. The server never evicts keys.
    pub(crate) fn is_full(&self) -> bool {
        self.config.max_memory > 0 && self.memory() as u64 > self.config.max_memory
    }
}

/// The watched keys of clients, and the clients whose EXEC fails because one has changed.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: BTreeMap<Bytes, BTreeSet<u64>>,
    changed: BTreeSet<u64>,
}

impl Watches {
    pub(crate) fn watch(&mut self, client: u64, key: &Bytes) {
        self.keys.entry(key.clone()).or_default().insert(client);
    }

    fn changed(&mut self, key: &Bytes) {
        if !self.keys.is_empty() {
            self.changed.extend(self.keys.get(key).into_iter().flatten());
        }
    }

    pub(crate) fn all_changed(&mut self) {
        self.changed.extend(self.keys.values().flatten());
    }

    /// Removes the watches of a client, and returns whether one of its keys has changed.
    pub(crate) fn end(&mut self, client: u64) -> bool {
        if !self.keys.is_empty() {
            self.keys.retain(|_, clients| {
                clients.remove(&client);
                !clients.is_empty()
            });
        }
        self.changed.remove(&client)
    }
}
