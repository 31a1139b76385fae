//! Messages that are to be handled later. There are no threads to write: a listener runs the handler
//! for each message when it is due.

use std::time::{Duration, SystemTime};

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// The payload is the text of the message. What fails comes again after 1 s, then after 10 s.
pub fn messages() -> keylapse::Result<Topic<String>> {
    let ladder = Backoff::table([1, 10].map(Duration::from_secs));
    Ok(Topic::new("message:{id}")?.marker_keys(false).retry(ladder))
}

/// Sends a message, to be handled when it is due.
pub async fn send(schedule: &Schedule, id: &str, due: SystemTime, text: &str) -> keylapse::Result<()> {
    let armed = schedule.arm(&messages()?, id, due, &text.to_owned()).await?;
    debug_assert!(armed.is_armed(), "the ids of messages are used once");
    Ok(())
}

/// An error or a panic ends this attempt, and nothing else: the message comes again, and the others have
/// not noticed.
pub async fn handle(message: Lapse<String>, world: World) -> anyhow::Result<Done> {
    let id = message.capture("id").unwrap_or_default();
    world.act(id, &message.id()).await?;
    println!("handled {id}: {}", message.payload());
    Ok(Done)
}

/// Until SIGTERM or ctrl-c. What has begun then may go on for a fifth of a second (`grace`, 10 s unless
/// set); the rest is handed back at once, and another listener has it the next moment.
pub async fn receive(url: &str, world: World) -> keylapse::Result<()> {
    Listener::builder(url)
        .grace(Duration::from_millis(200))
        .state(world)
        .on(messages()?, handle)
        .build()?
        .run_until(shutdown_signal())
        .await
}
