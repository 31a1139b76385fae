//! Messages that are handled later. A listener runs the handler for each message when it is due. The
//! program needs no threads of its own.

use std::time::{Duration, SystemTime};

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// Returns the topic of the messages. The payload is the text. A message that fails is retried after 1 s,
/// then after 10 s.
pub fn messages() -> keylapse::Result<Topic<String>> {
    let backoff = Backoff::table([1, 10].map(Duration::from_secs));
    Ok(Topic::new("message:{id}")?.marker_keys(false).retry(backoff))
}

/// Sends a message that is handled when it is due.
pub async fn send(schedule: &Schedule, id: &str, due: SystemTime, text: &str) -> keylapse::Result<()> {
    let armed = schedule.arm(&messages()?, id, due, &text.to_owned()).await?;
    debug_assert!(armed.is_armed(), "message IDs are unique");
    Ok(())
}

/// Handles a message. After an error or a panic, this message is retried. Other messages are not affected.
pub async fn handle(message: Lapse<String>, world: World) -> anyhow::Result<Done> {
    let id = message.capture("id").unwrap_or_default();
    world.act(id, &message.id()).await?;
    println!("handled {id}: {}", message.payload());
    Ok(Done)
}

/// Handles messages until SIGTERM or Ctrl-C. Running handlers then get 200 ms to finish (`grace`, default:
/// 10 s). Unfinished messages are released, so another listener can run them immediately.
pub async fn receive(url: &str, world: World) -> keylapse::Result<()> {
    Listener::builder(url)
        .grace(Duration::from_millis(200))
        .state(world)
        .on(messages()?, handle)
        .build()?
        .run_until(shutdown_signal())
        .await
}
