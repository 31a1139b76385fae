//! A list is the queue: a sale is pushed at one end, and a worker pops it at the other.
//!
//! The worker waits up to 30 s for the next sale, mails the seller, logs the result, and waits again. The
//! list keeps the order, and each sale goes to one worker only.

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};

use crate::stage::World;

const SOLD: &str = "hand:sold";
const WAIT_SECONDS: f64 = 30.0;

/// Queues a mail to the seller.
pub async fn sold(redis: &mut MultiplexedConnection, sale: &str, seller: &str) -> anyhow::Result<()> {
    Ok(redis.rpush(SOLD, serde_json::to_string(&(sale, seller))?).await?)
}

/// Mails sellers, one after the other. It returns only on errors.
pub async fn work(url: String, world: World) -> anyhow::Result<()> {
    // BLPOP may wait longer than the default response timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
    loop {
        let popped: Option<(String, String)> = redis.blpop(SOLD, WAIT_SECONDS).await?;
        let Some((_, sold)) = popped else { continue };
        let (sale, seller): (String, String) = serde_json::from_str(&sold)?;
        match world.act(&sale, &sale).await {
            Ok(()) => println!("mailed {seller}: sale {sale}"),
            Err(error) => println!("cannot mail {seller}: sale {sale}: {error}"),
        }
    }
}
