//! Timers kept in Redis or Valkey.

mod calls;
mod diagnose;
mod foreign;
mod preflight;
mod reply;
mod run;
pub mod scripts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(any(test, fuzzing))]
pub(crate) use self::calls::{
    read_armed, read_claimed, read_followed, read_peeked, read_places, read_settled,
};
pub(crate) use self::foreign::{read_touched, touch_command};
#[cfg(any(test, fuzzing))]
pub(crate) use self::reply::Reply;

use crate::error::{Error, Result};
use crate::connection::url::Address;
use crate::connection::node::Node;

/// The longest a script may take to answer, unless set otherwise. `redis`' own
/// default of 0.5 s would give up on calls that the server still executes.
pub const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Timers kept in Redis or Valkey.
///
/// Connects when it is first used, and again whenever a connection is lost.
/// Each clone shares the connection.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// For everything but waiting.
    node: Node,
    /// WAIT and WAITAOF hold up all that follows them on a connection.
    waiting: Node,
    /// A key that scripts read instead of TIME: for tests on a real server.
    clock: Option<Clocked>,
    /// The server's settings, as they were seen last.
    settings: Mutex<Option<preflight::Settings>>,
}

/// The scripts, made to read the time from a key.
#[derive(Debug)]
struct Clocked(std::collections::HashMap<&'static str, scripts::Script>);

impl Store {
    /// A store at a URL.
    ///
    /// # Errors
    /// When the URL cannot be read. Nothing is connected yet.
    pub fn new(url: &str) -> Result<Self> {
        Self::with_options(url, DEFAULT_ANSWER_WITHIN)
    }

    /// A store with another limit for answers.
    ///
    /// # Errors
    /// When the URL cannot be read, or the limit is zero.
    pub fn with_options(url: &str, answer_within: Duration) -> Result<Self> {
        if answer_within.is_zero() {
            return Err(Error::invalid("answer_within must be more than zero"));
        }
        let address = Address::parse(url)?;
        Ok(Self(Arc::new(Inner {
            node: Node::new(address.clone(), answer_within)?,
            waiting: Node::new(address, answer_within)?,
            clock: None,
            settings: Mutex::default(),
        })))
    }

    /// For the conformance suite: scripts read the time, in microseconds, from
    /// this key, so that a real server can be driven through hours.
    #[doc(hidden)]
    pub fn with_clock_key(url: &str, key: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let read = format!(
            "(function() local t = tonumber(redis.call('GET', '{key}')) return {{ math.floor(t / 1e6), t % 1e6 }} end)()"
        );
        let clocked = scripts::all().map(|script| (script.name, script.replace("redis.call('TIME')", &read)));
        Ok(Self(Arc::new(Inner {
            node: Node::new(address.clone(), DEFAULT_ANSWER_WITHIN)?,
            waiting: Node::new(address, DEFAULT_ANSWER_WITHIN)?,
            clock: Some(Clocked(clocked.collect())),
            settings: Mutex::default(),
        })))
    }

    /// How many requests this store has sent; a pipeline counts once. The
    /// subscription of [`events`](super::Store::events) has its own connection
    /// and is not counted here.
    pub fn requests(&self) -> u64 {
        self.0.node.requests() + self.0.waiting.requests()
    }

    /// The server, without user and password.
    pub fn server(&self) -> String {
        self.0.node.address().to_string()
    }

    pub(crate) fn address(&self) -> &Address {
        self.0.node.address()
    }
}
