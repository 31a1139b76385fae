//! A program that knows several servers and nothing of keylapse.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::timeout;

use crate::connect;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// More than a key can be sent on without going round in circles.
const REDIRECTS: usize = 8;

/// A client of a cluster, or of a master with replicas, that follows redirects and no more. What fails is its user's to
/// send again: it then asks another server.
#[derive(Debug)]
pub struct Plain {
    known: Arc<Mutex<Known>>,
    lines: HashMap<String, MultiplexedConnection>,
}

/// Where keys lie, as far as is known.
#[derive(Debug)]
struct Known {
    servers: Vec<String>,
    slots: HashMap<u16, String>,
    /// Who is asked for what lies anywhere: who answered last.
    last: String,
}

impl Plain {
    /// Of these servers, by their URLs; it may hear of others.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(servers: impl IntoIterator<Item = String>) -> Self {
        let servers: Vec<_> = servers.into_iter().collect();
        let last = servers.first().expect("a server").clone();
        let known = Known { servers, slots: HashMap::new(), last };
        Self { known: Arc::new(Mutex::new(known)), lines: HashMap::new() }
    }

    /// One with connections of its own: what waits on one of them keeps nobody else waiting. They tell each other where
    /// keys lie.
    pub fn another(&self) -> Self {
        Self { known: self.known.clone(), lines: HashMap::new() }
    }

    /// Sends a command about a key to whoever has it: the answer, and the URL of who gave it.
    ///
    /// # Errors
    /// What the server says, with its code; or that there was no answer, which has none.
    pub async fn ask(&mut self, key: &str, command: &Cmd) -> RedisResult<(Value, String)> {
        let slot = slot_of(key);
        let (mut url, mut asking) = (self.known().of(slot), false);
        for _ in 0..REDIRECTS {
            let error = match self.try_once(&url, command, asking).await {
                Ok(answer) => {
                    self.known().last.clone_from(&url);
                    return Ok((answer, url));
                }
                Err(error) => error,
            };
            let Some((to, _)) = error.redirect_node() else {
                self.known().is_no_good(&url);
                return Err(error);
            };
            asking = error.code() == Some("ASK");
            url = format!("redis://{to}");
            if !asking {
                self.known().learn(slot, &url);
            }
        }
        Err(io::Error::other(format!("{key} is sent from one server to the next")).into())
    }

    /// Sends a command to one server: on the same connection as what it had before.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask); redirects are errors, too.
    pub async fn ask_at(&mut self, url: &str, command: &Cmd) -> RedisResult<Value> {
        self.try_once(url, command, false).await
    }

    async fn try_once(&mut self, url: &str, command: &Cmd, asking: bool) -> RedisResult<Value> {
        let no_answer = |_| Err(RedisError::from(io::Error::other(format!("no answer from {url}"))));
        let answer = timeout(PATIENCE, self.send(url, command, asking)).await.unwrap_or_else(no_answer);
        // Only an answer with a code came from the server.
        if answer.as_ref().is_err_and(|error| error.code().is_none()) {
            self.lines.remove(url);
        }
        answer
    }

    async fn send(&mut self, url: &str, command: &Cmd, asking: bool) -> RedisResult<Value> {
        if !self.lines.contains_key(url) {
            self.lines.insert(url.to_owned(), connect(url).await?);
        }
        let line = self.lines.get_mut(url).expect("it is there");
        if asking {
            redis::cmd("ASKING").exec_async(line).await?;
        }
        command.query_async(line).await
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics with it")
    }
}

impl Known {
    fn of(&self, slot: u16) -> String {
        self.slots.get(&slot).unwrap_or(&self.last).clone()
    }

    /// Of one that has moved, only this is known.
    fn learn(&mut self, slot: u16, url: &str) {
        self.slots.insert(slot, url.to_owned());
        if !self.servers.iter().any(|server| server == url) {
            self.servers.push(url.to_owned());
        }
    }

    /// Another knows who has taken its place.
    fn is_no_good(&mut self, url: &str) {
        self.slots.retain(|_, at| at != url);
        if self.last == url || !self.servers.contains(&self.last) {
            let place = self.servers.iter().position(|server| server == url).unwrap_or_default();
            self.last.clone_from(&self.servers[(place + 1) % self.servers.len()]);
        }
    }
}

/// A key's slot, or its tag's.
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
