//! The faults that are injected while notices are delivered.

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

/// Kills subscriptions and switches notifications off, and then on again.
pub(crate) async fn play(server: &Server, screen: &Screen) {
    let started = Instant::now();
    sleep_until(started + KILLS_FROM).await;
    screen.print_event("killing the pub/sub connections twenty times a second");
    let killed = kill_until(server, started + KILLS_TO).await;
    screen.print_event(&format!("no more kills; {killed} connections were closed"));

    sleep_until(started + SILENCE_FROM).await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", ""]).await;
    screen.print_event("notifications are off: the server sends no event for an expired key");
    sleep_until(started + KILLS_IN_SILENCE).await;
    let killed = kill_until(server, Instant::now() + Duration::from_secs(1)).await;
    screen.print_event(&format!("{killed} more pub/sub connections were closed"));

    sleep_until(started + SILENCE_TO).await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
    screen.print_event("notifications are on again");
}

/// Kills pub/sub connections until `end`, and returns how many.
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
