//! What it costs that listeners hear of keys that expire: each of them hears of each, on whichever server it was.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse_bench::Fault;
use keylapse_bench::scale::owner;
use tokio::time::sleep;

use crate::listening::{Starts, until};
use crate::scene::{AFTERMATH, Scene, key};
use crate::usage::Usage;

/// Keys are written and read in pipelines of so many.
const PORTION: usize = 1000;
/// Numbers of keys that no timer has.
const FOREIGN: usize = 1_000_000_000;

impl Scene {
    /// Keys of the topic that have no timers expire before so many listeners, and before none; the difference, for each
    /// key and listener.
    pub(crate) async fn hear(&mut self, listeners: usize) -> Result<(), Fault> {
        let (alone, alone_us) = self.expire(0).await?;
        let (heard, heard_us) = self.expire(listeners).await?;
        let each = (self.size.heard * self.primaries * listeners) as f64;
        let more = heard - alone;
        self.put("hear_server_us", more.processor_us / each);
        self.put("hear_client_us", (heard_us - alone_us) / each);
        self.put("hear_bytes_out", more.bytes_out / each);
        Ok(())
    }

    /// What is used for that by the servers and by this process, which also reads the keys.
    async fn expire(&mut self, listeners: usize) -> Result<(Usage, f64), Fault> {
        let keys: Vec<_> = (0..self.size.heard * self.primaries)
            .map(|number| key(&self.prefix, FOREIGN + number).0)
            .collect();
        let running = self.listen(&Starts::new(1), listeners).await?;
        let at = SystemTime::now() + Duration::from_secs(1) + Duration::from_micros(100) * keys.len() as u32;
        let ms = at.duration_since(UNIX_EPOCH)?.as_millis() as u64;
        self.tell_owners(&keys, |pipe, key| {
            pipe.cmd("SET").arg(key).arg("1").arg("PXAT").arg(ms);
        })
        .await?;
        let left = at.duration_since(SystemTime::now()).map_err(|_| "writing took too long")?;
        sleep(left.saturating_sub(Duration::from_millis(200))).await;
        let span = self.begin().await?;
        let left = at.duration_since(SystemTime::now()).unwrap_or_default();
        sleep(left + Duration::from_millis(10)).await;
        // What is read after its deadline is removed, and announced.
        self.tell_owners(&keys, |pipe, key| _ = pipe.cmd("EXISTS").arg(key)).await?;
        for one in &running {
            until("a listener to hear all", || one.heard() >= keys.len() as u64).await?;
        }
        sleep(AFTERMATH).await;
        let used = self.used(span).await?;
        for one in running {
            one.end().await?;
        }
        Ok(used)
    }

    /// A command for each key, sent to the server that has it.
    async fn tell_owners(
        &mut self,
        keys: &[String],
        command: impl Fn(&mut redis::Pipeline, &str),
    ) -> Result<(), Fault> {
        for portion in keys.chunks(PORTION) {
            let mut pipes = vec![redis::pipe(); self.primaries];
            for key in portion {
                command(&mut pipes[owner(key.as_bytes(), self.primaries)], key);
            }
            self.meter.tell(pipes).await?;
        }
        Ok(())
    }
}
