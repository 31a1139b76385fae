//! The consumer of the story: consumer.py in Rust, since a story must not depend on Python.

use redis::{AsyncCommands, AsyncConnectionConfig, Client, Direction};
use serde::Deserialize;

use super::with_keylapse::READY;
use crate::stage::World;

/// The only one of its name.
const MINE: &str = "{orders}:ready:a";

#[derive(Deserialize)]
struct Entry {
    id: String,
    order: String,
}

/// Works on orders, for ever. What it had taken when it was killed comes first.
pub(super) async fn consume(url: String, world: World) -> anyhow::Result<()> {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&patient).await?;
    loop {
        let left: Option<String> = redis.lindex(MINE, -1).await?;
        let taken = match left {
            Some(entry) => entry,
            None => redis.blmove(READY, MINE, Direction::Right, Direction::Left, 0.0).await?,
        };
        let entry: Entry = serde_json::from_str(&taken)?;
        world.act(&entry.order, &entry.id).await?;
        redis.lrem::<_, _, ()>(MINE, 1, taken).await?;
    }
}
