//! The costs of expired keys for listeners: each listener receives every expiry of every server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse_bench::Fault;
use keylapse_bench::scale::{key_in_each_slot, owner};
use tokio::time::sleep;

use crate::listening::{Starts, until};
use crate::scene::{AFTERMATH, DAY, Scene, key};
use crate::usage::Usage;

/// Keys that one pipeline writes or reads.
const PORTION: usize = 1000;
/// The first number of keys that have no timer.
const FOREIGN: usize = 1_000_000_000;

impl Scene {
    /// Measures the cost of an expiry for each key and listener. Keys of the topic without timers expire without listeners,
    /// then with them; the difference counts.
    pub(crate) async fn expiries(&mut self, listeners: usize) -> Result<(), Fault> {
        let (alone, alone_us) = self.expire(0).await?;
        let (watched, watched_us) = self.expire(listeners).await?;
        let each = (self.size.expiring * self.primaries * listeners) as f64;
        let more = watched - alone;
        self.put("hear_server_us", more.processor_us / each);
        self.put("hear_client_us", (watched_us - alone_us) / each);
        self.put("hear_bytes_out", more.bytes_out / each);
        Ok(())
    }

    /// Lets keys expire. Returns the usage of the servers and of this process, which also reads the keys.
    async fn expire(&mut self, listeners: usize) -> Result<(Usage, f64), Fault> {
        let keys: Vec<_> = (0..self.size.expiring * self.primaries)
            .map(|number| key(&self.prefix, FOREIGN + number).0)
            .collect();
        let running = self.listen(&Starts::new(1), listeners).await?;
        let at = SystemTime::now() + Duration::from_secs(1) + Duration::from_micros(100) * keys.len() as u32;
        let ms = at.duration_since(UNIX_EPOCH)?.as_millis() as u64;
        self.send_to_owners(&keys, |pipe, key| {
            pipe.cmd("SET").arg(key).arg("1").arg("PXAT").arg(ms);
        })
        .await?;
        let left = at.duration_since(SystemTime::now()).map_err(|_| "writing took too long")?;
        sleep(left.saturating_sub(Duration::from_millis(200))).await;
        let span = self.begin().await?;
        let left = at.duration_since(SystemTime::now()).unwrap_or_default();
        sleep(left + Duration::from_millis(10)).await;
        // Redis deletes a key that is read after its deadline, and publishes its expiry.
        self.send_to_owners(&keys, |pipe, key| _ = pipe.cmd("EXISTS").arg(key)).await?;
        for one in &running {
            until("a listener to receive all expiries", || one.expiries() >= keys.len() as u64).await?;
        }
        sleep(AFTERMATH).await;
        let used = self.used(span).await?;
        for one in running {
            one.end().await?;
        }
        Ok(used)
    }

    /// Writes a key into each slot. Redis 8 allocates 2.6 KB for the first key of a slot, which is not the cost of a timer.
    pub(crate) async fn fill_slots(&mut self) -> Result<(), Fault> {
        let set = |pipe: &mut redis::Pipeline, key: &str| {
            pipe.cmd("SET").arg(key).arg("1").arg("EX").arg(DAY.as_secs());
        };
        self.send_to_owners(&key_in_each_slot().collect::<Vec<_>>(), set).await
    }

    /// Sends a command for each key to the server that has it.
    async fn send_to_owners(
        &mut self,
        keys: &[String],
        command: impl Fn(&mut redis::Pipeline, &str),
    ) -> Result<(), Fault> {
        for portion in keys.chunks(PORTION) {
            let mut pipes = vec![redis::pipe(); self.primaries];
            for key in portion {
                command(&mut pipes[owner(key.as_bytes(), self.primaries)], key);
            }
            self.meter.send(pipes).await?;
        }
        Ok(())
    }
}
