use std::time::Duration;

use keylapse::{Done, Lapse, Schedule, Topic};

use crate::stage::World;

/// Returns the topic, with one timer for each device. It runs when the device was silent for 30 seconds.
pub fn silence() -> keylapse::Result<Topic<()>> {
    Topic::new("device:silent:{device}")
}

/// Records a heartbeat, which replaces the timer of the previous one.
pub async fn beat(schedule: &Schedule, device: &str) -> keylapse::Result<()> {
    let _armed = schedule.arm(&silence()?, device, Duration::from_secs(30), &()).await?;
    Ok(())
}

/// Runs when a device was silent for 30 seconds.
pub async fn lost(lapse: Lapse<()>, world: World) -> anyhow::Result<Done> {
    world.act(lapse.capture("device").unwrap_or_default(), &lapse.id()).await?;
    Ok(Done)
}
