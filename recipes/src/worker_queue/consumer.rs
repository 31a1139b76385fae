//! The consumer of the story: consumer.py in Rust, because stories must run without Python.

use redis::{AsyncCommands, AsyncConnectionConfig, Client, Direction};
use serde::Deserialize;

use super::with_keylapse::READY;
use crate::stage::World;

/// The list of the consumer `a`, which holds the order that it works on.
const MINE: &str = "{orders}:ready:a";

#[derive(Deserialize)]
struct Entry {
    id: String,
    order: String,
}

/// Takes orders and runs them, first those that a killed consumer had taken. It returns only on errors.
pub(super) async fn consume(url: String, world: World) -> anyhow::Result<()> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
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
