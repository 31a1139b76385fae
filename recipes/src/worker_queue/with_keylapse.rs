//! Pushes due orders to a list, from which programs in other languages take them.
//!
//! The listener sleeps until the next deadline, then its handler pushes the order.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use keylapse::{Backoff, Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};
use redis::Script;
use redis::aio::ConnectionManager;
use serde_json::json;

/// The list of due orders. Consumers take from its right end.
pub const READY: &str = "{orders}:ready";

/// The list holds at most this many orders. Further orders wait in their timers, where they occupy no worker.
pub const MAX_READY: usize = 1000;

/// Pushes an entry unless its ID was pushed before. Returns 0 if the list is full, otherwise 1. The braces
/// in the names place both keys in one slot of Redis Cluster.
static PUSH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
         if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
         redis.call('LPUSH', KEYS[1], ARGV[1])
         redis.call('SET', KEYS[2], '', 'EX', 86400)
         return 1",
    )
});

/// Creates the topic. A failed attempt is retried after 1 s, 10 s and a minute; if all fail, the order
/// becomes a dead letter. If the list is full, the handler runs again each second, for up to 30 days.
pub fn orders() -> keylapse::Result<Topic<String>> {
    let backoff = Backoff::table([1, 10, 60].map(Duration::from_secs));
    Ok(Topic::new("order:delayed:{order}")?.marker_keys(false).retry(backoff).max_snoozes(u16::MAX))
}

/// Arms the timer of an order.
pub async fn delay(schedule: &Schedule, order: &str, due: SystemTime, text: &str) -> keylapse::Result<()> {
    let armed = schedule.arm(&orders()?, order, due, &text.to_owned()).await?;
    debug_assert!(armed.is_armed(), "order numbers are used once");
    Ok(())
}

/// Pushes an order. It may run twice, for example if this process dies after the push. Both runs have one
/// ID, so the second run pushes nothing. Consumers receive the ID, too, and recognize repeats by it.
pub async fn push(lapse: Lapse<String>, mut redis: ConnectionManager) -> anyhow::Result<Outcome> {
    let (id, order) = (lapse.id(), lapse.capture("order"));
    let entry = json!({ "id": id, "order": order, "text": lapse.payload() }).to_string();
    let pushed = format!("{{orders}}:pushed:{id}");
    let mut push = PUSH.key(READY);
    let answer = push.key(pushed).arg(entry).arg(MAX_READY).invoke_async(&mut redis).await;
    let room: bool = answer.with_context(|| format!("cannot push to {READY}"))?;
    // A snooze does not count as an attempt.
    Ok(if room { Outcome::Done } else { Outcome::Snooze(Duration::from_secs(1)) })
}

/// Runs a listener. You can run several: each order goes to one of them.
pub async fn run(url: &str) -> anyhow::Result<()> {
    let redis = redis::Client::open(url)?.get_connection_manager().await?;
    let listener = Listener::builder(url).state(redis).on(orders()?, push).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
