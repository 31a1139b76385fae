//! All keys of the database, gone through once at the rate of a listener's scan.

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use crate::connection::Server;
use crate::error::Result;
use crate::escape::glob_of_any;
use crate::limits::MAX_KEY;
use crate::pattern::Pattern;
use crate::policy::scan_pace;
use crate::schedule::Schedule;
use crate::wire::is_own;

/// Gives those that a pattern matches, step by step. Nothing is written.
#[allow(missing_debug_implementations, unnameable_types, reason = "the console scans by it")]
pub struct KeyScan<'a> {
    schedule: &'a Schedule,
    pattern: &'a Pattern,
    rate: u32,
    /// Those that are left, the present one last.
    servers: Vec<Server>,
    cursor: u64,
    /// When the next step may be made.
    due: Instant,
    /// Keys that match but for their length.
    pub too_long: u64,
}

impl Schedule {
    /// Of all primaries, so many keys a second.
    pub async fn scan<'a>(&'a self, pattern: &'a Pattern, rate: u32) -> Result<KeyScan<'a>> {
        let mut servers = self.persist(|_| self.client.store.scanned()).await?;
        servers.reverse();
        let due = Instant::now();
        Ok(KeyScan { schedule: self, pattern, rate, servers, cursor: 0, due, too_long: 0 })
    }
}

impl KeyScan<'_> {
    /// The keys that the next step finds, which may be none; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>> {
        let Some(server) = self.servers.last().cloned() else { return Ok(None) };
        sleep_until(self.due).await;
        let (step, every) = scan_pace(self.rate);
        self.due = Instant::now() + every;
        let (store, cursor) = (&self.schedule.client.store, self.cursor);
        let prefix = glob_of_any(&[self.pattern.literal_prefix()]);
        let found = self.schedule.persist(|_| store.scan(&server, cursor, &prefix, step as usize)).await?;
        self.cursor = found.0;
        if self.cursor == 0 {
            self.servers.pop();
            self.due = Instant::now();
        }
        Ok(Some(self.matching(found.1)))
    }

    fn matching(&mut self, mut keys: Vec<Bytes>) -> Vec<Bytes> {
        keys.retain(|key| !is_own(&self.schedule.client.namespace, key) && self.pattern.is_match(key));
        let found = keys.len();
        keys.retain(|key| key.len() <= MAX_KEY);
        self.too_long += (found - keys.len()) as u64;
        keys
    }
}
