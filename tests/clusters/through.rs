//! Timers, and keys of another program, through one way in.

use std::collections::BTreeSet;
use std::time::Duration;

use keylapse::health::EventMode;
use keylapse::{Client, Done, Expiry, Lapse, Listener, Schedule};
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, RedisReply};

use crate::attached::scene::{Notes, order, orders};
use crate::load::topic;
use crate::support::{PATIENCE, Reports, Running, reporting, show_log};

/// So many that each of three primaries has some.
const EACH: u32 = 20;

/// A producer and a listener, who have come in that way.
pub(crate) struct Through {
    schedule: Schedule,
    running: Running,
    reports: Reports<u32>,
    notes: Notes,
    armed: u32,
}

impl Through {
    /// Begins when the listener hears all servers.
    pub(crate) async fn begin(producer: Client, listener: Client) -> Self {
        show_log();
        let (notes, producer) = (Notes::default(), producer.retry_for(2 * PATIENCE));
        let (handler, reports) = reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok(Done)));
        let listener = Listener::builder(listener).on(topic(8), handler).attach(orders(), notes.handler());
        let running = Running::start(listener);
        let schedule = Schedule::connect(producer).await.unwrap();
        eventually(PATIENCE, "all to be heard", async || running.stats.mode() == EventMode::Changes).await;
        Self { schedule, running, reports, notes, armed: 0 }
    }

    /// Timers from arm to handler. One that ran before a fault may run again after it.
    pub(crate) async fn timers(&mut self) {
        let numbers = self.armed..self.armed + EACH;
        for number in numbers.clone() {
            let id = [number.to_string()];
            let armed = self.schedule.arm(&topic(8), id, Duration::from_millis(5), &number).await.unwrap();
            assert!(armed.is_armed(), "{armed:?}");
        }
        let mut missing: BTreeSet<_> = numbers.collect();
        while !missing.is_empty() {
            missing.remove(&self.reports.next().await);
        }
        self.armed += EACH;
    }

    /// Orders from when somebody writes them, with their names as values and for so many milliseconds, to their handlers.
    pub(crate) async fn keys(&self, write: impl AsyncFn(&str, &str)) {
        for number in 0..EACH {
            write(&order(number), "2000").await;
        }
        self.notes.until(EACH as usize).await;
        self.notes.assert_each_once(EACH as usize);
        for (key, runs) in self.notes.all() {
            let run = &runs[0];
            assert_eq!(
                (run.value.as_deref(), run.expiry),
                (Some(key.as_bytes()), Expiry::Announced),
                "{key}"
            );
        }
    }

    pub(crate) async fn end(self) {
        self.running.stop().await.unwrap();
    }
}

/// Another program writes a key there, whose value is its name.
pub(crate) async fn set(node: &LocalNode, key: &str, life: &str) {
    let done = node.command(["SET", key, key, "PX", life]).await;
    assert_eq!(done, Ok(RedisReply::Status("OK".into())));
}
