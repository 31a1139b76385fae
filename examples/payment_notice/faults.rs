//! What goes wrong while the notices are under way.

use std::time::Duration;

use keylapse_support::Server;
use redis::Value;
use tokio::time::{Instant, interval, sleep_until};

use crate::screen::Screen;

const KILLS_FROM: Duration = Duration::from_millis(1500);
const KILLS_TO: Duration = Duration::from_millis(3500);
const KILL_EVERY: Duration = Duration::from_millis(50);
const SILENCE_FROM: Duration = Duration::from_secs(4);
const KILLS_IN_SILENCE: Duration = Duration::from_secs(5);
const SILENCE_TO: Duration = Duration::from_millis(6500);

/// Breaks what a listener hears, and mends it again.
pub(crate) async fn play(server: &Server, screen: &Screen) {
    let started = Instant::now();
    sleep_until(started + KILLS_FROM).await;
    screen.say("the pub/sub connections are killed, twenty times a second");
    let killed = kill_until(server, started + KILLS_TO).await;
    screen.say(&format!("no more kills; {killed} connections were closed"));

    sleep_until(started + SILENCE_FROM).await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", ""]).await;
    screen.say("notifications are switched off: no expired key is announced");
    sleep_until(started + KILLS_IN_SILENCE).await;
    let killed = kill_until(server, Instant::now() + Duration::from_secs(1)).await;
    screen.say(&format!("{killed} more pub/sub connections were killed meanwhile"));

    sleep_until(started + SILENCE_TO).await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
    screen.say("notifications are on again");
}

/// How many connections were closed.
async fn kill_until(server: &Server, end: Instant) -> i64 {
    let mut killed = 0;
    let mut ticks = interval(KILL_EVERY);
    while Instant::now() < end {
        ticks.tick().await;
        if let Value::Int(closed) = server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await {
            killed += closed;
        }
    }
    killed
}
