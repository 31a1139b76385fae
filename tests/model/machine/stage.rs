//! Where lives are played: two stores that begin anew each time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::internals::Letters;
use tokio::runtime::{Builder, Runtime};

use super::op::Step;
use super::player::{Player, Verdict};
use crate::rig::{EventLoop, Rig};

pub(crate) struct Stage {
    runtime: Runtime,
    memory: Rig,
    redis: Rig,
    /// Subscribing takes longer than a life does.
    on_redis: EventLoop,
}

impl Stage {
    pub(crate) fn open(name: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let (redis, on_redis) = runtime.block_on(async {
            let redis = Rig::redis(name).await;
            let hearing = EventLoop::open(&redis).await;
            (redis, hearing)
        });
        Self { runtime, memory: Rig::memory(), redis, on_redis }
    }

    /// Plays one life to its end, and says what was wrong with it.
    pub(crate) fn play(&mut self, letters: Letters, steps: &[Step], promises: bool) -> Verdict {
        let Self { runtime, memory, redis, on_redis } = self;
        runtime.block_on(async {
            memory.reset(start()).await;
            redis.reset(start()).await;
            on_redis.so_far(redis).await;
            let mut player = Player::new(memory, redis, letters, promises).await;
            for (place, step) in steps.iter().enumerate() {
                player.play(step).await.map_err(|why| format!("at step {place}, {step:?}:\n{why}"))?;
            }
            player.compare().await?;
            if promises {
                player.drain().await.map_err(|why| format!("at the end: {why}"))?;
                player.compare().await?;
            }
            let (in_memory, on_redis) = (player.heard, on_redis.so_far(redis).await);
            if in_memory == on_redis {
                return Ok(());
            }
            Err(format!("listeners were told otherwise:\n  memory {in_memory:?}\n  redis  {on_redis:?}"))
        })
    }
}

/// The same for every life, so that failures repeat.
fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_micros(250)
}
