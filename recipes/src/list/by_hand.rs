//! A list as the queue: what was sold is pushed at one end, a worker pops it at the other.
//!
//! The worker waits up to 30 s for the next sale, mails whoever sold it, logs the result, and waits
//! again. The list keeps the order, and each sale goes to one worker only.

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};

use crate::stage::World;

const SOLD: &str = "hand:sold";
const WAIT_SECONDS: f64 = 30.0;

/// Queues a mail to the seller.
pub async fn sold(redis: &mut MultiplexedConnection, sale: &str, seller: &str) -> anyhow::Result<()> {
    Ok(redis.rpush(SOLD, serde_json::to_string(&(sale, seller))?).await?)
}

/// Mails sellers, one after the other, for ever.
pub async fn work(url: String, world: World) -> anyhow::Result<()> {
    // BLPOP takes as long as it waits, so no answer is too late.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&patient).await?;
    loop {
        let popped: Option<(String, String)> = redis.blpop(SOLD, WAIT_SECONDS).await?;
        let Some((_, sold)) = popped else { continue };
        let (sale, seller): (String, String) = serde_json::from_str(&sold)?;
        match world.act(&sale, &sale).await {
            Ok(()) => println!("{seller} knows of sale {sale}"),
            Err(error) => println!("{seller} does not know of sale {sale}: {error}"),
        }
    }
}
