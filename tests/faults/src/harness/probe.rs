//! Asks the server all the time whether it still writes: on a busy machine a slow processor or disk is a
//! fault like any other, and a lease that is lost by it must be on record.

use std::time::Duration;

use keylapse_support::connect;
use tokio::time::{MissedTickBehavior, interval};

use super::Harness;
use crate::clock::{Micros, now};

const EVERY: Duration = Duration::from_millis(25);
/// Quicker answers lose nobody a lease, and keep no ack for long.
const WORTH_NOTING: Micros = 150_000;

impl Harness {
    /// Probes for as long as it is awaited.
    pub async fn probe(&self, url: &str) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connection = None;
        loop {
            ticks.tick().await;
            let since = now();
            if connection.is_none() {
                connection = connect(url).await.ok();
            }
            let Some(open) = &mut connection else { continue };
            let written = redis::cmd("INCR").arg("probe").exec_async(open).await;
            if written.is_err() {
                connection = None; // one of the other faults, which are on record
            } else if now() - since > WORTH_NOTING {
                self.troupe.record_fault(since, None, &"slow to write", true);
            }
        }
    }
}
