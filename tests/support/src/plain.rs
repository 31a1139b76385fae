//! A client of several servers that does not use keylapse.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::timeout;

use crate::connect;

const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// More redirects than these are a loop.
const MAX_REDIRECTS: usize = 8;

/// A client of a cluster, or of a master with replicas, that follows redirects but does not retry. If the caller repeats a
/// failed command, the client sends it to another server.
#[derive(Debug)]
pub struct Plain {
    known: Arc<Mutex<Routes>>,
    connections: HashMap<String, MultiplexedConnection>,
}

/// The servers, and those of the slots that are known.
#[derive(Debug)]
struct Routes {
    servers: Vec<String>,
    slots: HashMap<u16, String>,
    /// The server that answered last. It receives commands about slots whose server is not known.
    last: String,
}

impl Plain {
    /// Creates a client of the servers with these URLs. Redirects can add others.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn new(servers: impl IntoIterator<Item = String>) -> Self {
        let servers: Vec<_> = servers.into_iter().collect();
        let last = servers.first().expect("the list of servers must not be empty").clone();
        let known = Routes { servers, slots: HashMap::new(), last };
        Self { known: Arc::new(Mutex::new(known)), connections: HashMap::new() }
    }

    /// Returns a client with its own connections, so that commands of the two do not wait for each other. Both share the
    /// routes of keys.
    pub fn another(&self) -> Self {
        Self { known: self.known.clone(), connections: HashMap::new() }
    }

    /// Sends a command to the server that owns `key`. Returns the answer and the URL of that server.
    ///
    /// # Errors
    /// Returns the server's error, which has a code. An error without a code means that no server answered.
    pub async fn ask(&mut self, key: &str, command: &Cmd) -> RedisResult<(Value, String)> {
        let slot = slot_of(key);
        let (mut url, mut asking) = (self.known().of(slot), false);
        for _ in 0..MAX_REDIRECTS {
            let error = match self.try_once(&url, command, asking).await {
                Ok(answer) => {
                    self.known().last.clone_from(&url);
                    return Ok((answer, url));
                }
                Err(error) => error,
            };
            let Some((to, _)) = error.redirect_node() else {
                self.known().forget(&url);
                return Err(error);
            };
            asking = error.code() == Some("ASK");
            url = format!("redis://{to}");
            if !asking {
                self.known().learn(slot, &url);
            }
        }
        Err(io::Error::other(format!("{key} was redirected {MAX_REDIRECTS} times")).into())
    }

    /// Sends a command to one server, on the same connection as the previous commands to it.
    ///
    /// # Errors
    /// Returns the errors of [`ask`](Self::ask), and redirects, too.
    pub async fn ask_at(&mut self, url: &str, command: &Cmd) -> RedisResult<Value> {
        self.try_once(url, command, false).await
    }

    async fn try_once(&mut self, url: &str, command: &Cmd, asking: bool) -> RedisResult<Value> {
        let no_answer = |_| Err(RedisError::from(io::Error::other(format!("no answer from {url}"))));
        let answer = timeout(REPLY_TIMEOUT, self.send(url, command, asking)).await.unwrap_or_else(no_answer);
        // Only an answer with a code came from the server.
        if answer.as_ref().is_err_and(|error| error.code().is_none()) {
            self.connections.remove(url);
        }
        answer
    }

    async fn send(&mut self, url: &str, command: &Cmd, asking: bool) -> RedisResult<Value> {
        if !self.connections.contains_key(url) {
            self.connections.insert(url.to_owned(), connect(url).await?);
        }
        let connection = self.connections.get_mut(url).expect("it was inserted above");
        if asking {
            redis::cmd("ASKING").exec_async(connection).await?;
        }
        command.query_async(connection).await
    }

    fn known(&self) -> MutexGuard<'_, Routes> {
        self.known.lock().expect("no thread panics while it holds the routes")
    }
}

impl Routes {
    fn of(&self, slot: u16) -> String {
        self.slots.get(&slot).unwrap_or(&self.last).clone()
    }

    /// Stores the new server of one slot. Other slots of the old server may not have moved.
    fn learn(&mut self, slot: u16, url: &str) {
        self.slots.insert(slot, url.to_owned());
        if !self.servers.iter().any(|server| server == url) {
            self.servers.push(url.to_owned());
        }
    }

    /// Removes a server that does not answer from the routes. The next server can redirect to its successor.
    fn forget(&mut self, url: &str) {
        self.slots.retain(|_, at| at != url);
        if self.last == url || !self.servers.contains(&self.last) {
            let place = self.servers.iter().position(|server| server == url).unwrap_or_default();
            self.last.clone_from(&self.servers[(place + 1) % self.servers.len()]);
        }
    }
}

/// Returns the slot of a key, which depends only on its hash tag if it has one.
fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let mut crc: u16 = 0;
    for byte in tag.filter(|tag| !tag.is_empty()).unwrap_or(key).bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo{bar}zap"), slot_of("bar"));
        assert_eq!(slot_of("foo"), 12_182);
    }
}
