//! The canary: proof that events flow, from flag to network.
//!
//! A numbered key of 1 ms whose expired event comes back on the subscription
//! proves the notification flag, the ACL, the channel and the link. It also
//! proves the role, as only a primary takes the write and publishes `expired`
//! for it; so no ROLE is asked for.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value, cmd};

use crate::events::script::run;
use crate::wire::script_call;
use crate::wire::scripts::CANARY;

/// How long a canary lives.
const TTL_MS: u64 = 1;
/// When to read it: in its deadline's own millisecond it is still alive.
const TOUCH_AFTER: Duration = Duration::from_millis(3);
/// How often to read it before leaving it to the server.
const TOUCHES: u32 = 5;

/// Makes a canary, unless one is alive, and reads it once it is due. The event
/// then precedes the answer on this connection.
pub(super) async fn release(counter: String, mut connection: MultiplexedConnection) -> RedisResult<()> {
    let last = make(connection.clone(), &counter).await?;
    let name = format!("{counter}:{last}");
    for _ in 0..TOUCHES {
        tokio::time::sleep(TOUCH_AFTER).await;
        let alive: bool = cmd("EXISTS").arg(&name).query_async(&mut connection).await?;
        if !alive {
            break;
        }
    }
    Ok(())
}

async fn make(connection: MultiplexedConnection, counter: &str) -> RedisResult<String> {
    let mut call = script_call(&CANARY, &[counter]);
    call.arg(TTL_MS);
    run(connection, &CANARY, &call).await.map(|(last, _): (String, Value)| last)
}
