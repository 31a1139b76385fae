//! Orders that are due are pushed to a list, from which programs in other languages take them. There is
//! no tick: the listener sleeps until the next deadline, and then its handler pushes.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use keylapse::{Backoff, Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};
use redis::Script;
use redis::aio::ConnectionManager;
use serde_json::json;

/// The list, from which consumers take at the right end.
pub const READY: &str = "{orders}:ready";

/// As many may wait there. Whatever is due beyond that waits in its timer, where it costs no worker.
pub const BOUND: usize = 1000;

/// Pushes an entry, unless it was pushed under this id before, and if there is room. The braces in the
/// names keep both keys together in a cluster.
static PUSH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
         if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
         redis.call('LPUSH', KEYS[1], ARGV[1])
         redis.call('SET', KEYS[2], '', 'EX', 86400)
         return 1",
    )
});

/// What fails comes again after 1 s, 10 s and a minute, then it is a dead letter. What finds no room comes
/// again each second, for 18 hours.
pub fn orders() -> keylapse::Result<Topic<String>> {
    let ladder = Backoff::table([1, 10, 60].map(Duration::from_secs));
    Ok(Topic::new("order:delayed:{order}")?.marker_keys(false).retry(ladder).max_snoozes(u16::MAX))
}

/// Puts an order aside until it is due.
pub async fn delay(schedule: &Schedule, order: &str, due: SystemTime, text: &str) -> keylapse::Result<()> {
    let armed = schedule.arm(&orders()?, order, due, &text.to_owned()).await?;
    debug_assert!(armed.is_armed(), "order numbers are used once");
    Ok(())
}

/// Pushes an order. It may run twice, as when this process dies after the push; the id is the same then,
/// and the second time pushes nothing. Consumers get the id as well, and can tell repeats of theirs by it.
pub async fn push(lapse: Lapse<String>, mut redis: ConnectionManager) -> anyhow::Result<Outcome> {
    let (id, order) = (lapse.id(), lapse.capture("order"));
    let entry = json!({ "id": id, "order": order, "text": lapse.payload() }).to_string();
    let pushed = format!("{{orders}}:pushed:{id}");
    let mut push = PUSH.key(READY);
    let answer = push.key(pushed).arg(entry).arg(BOUND).invoke_async(&mut redis).await;
    let room: bool = answer.with_context(|| format!("cannot push to {READY}"))?;
    // A snooze uses up no attempt.
    Ok(if room { Outcome::Done } else { Outcome::Snooze(Duration::from_secs(1)) })
}

/// Run as many as you like: each order goes to one of them.
pub async fn run(url: &str) -> anyhow::Result<()> {
    let redis = redis::Client::open(url)?.get_connection_manager().await?;
    let listener = Listener::builder(url).state(redis).on(orders()?, push).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
