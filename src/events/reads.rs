//! Touches: attached keys, read on the connection on which their expiry is announced.
//!
//! There the announcement precedes the answer. So an answer is put behind everything that was heard
//! before it, and whoever reads the stream up to it knows what was published before the key was read.

use std::future::Future;
use std::pin::pin;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tracing::debug;

use crate::connection::classify;
use crate::error::Result;
use crate::events::event::{Event, Touch, Touched};
use crate::events::script::run;
use crate::events::session::pass;
use crate::wire::scripts::TOUCH;
use crate::wire::{read_touched, touch_command};

/// Reads the keys.
pub(super) async fn touch(asked: Touch, connection: MultiplexedConnection) -> Touched {
    let call = touch_command(&asked.keys, asked.capture);
    let answer = match run(connection, &TOUCH, &call).await {
        Ok(answer) => read_touched(answer, asked.keys.len()),
        Err(error) => Err(classify("reading keys", &error)),
    };
    let answer = answer.inspect_err(|error| debug!(%error, "keys were not read")).ok();
    Touched { id: asked.id, answer }
}

/// Waits for something while there is no connection, and answers each touch by that.
pub(super) async fn refuse<T>(
    touches: &mut mpsc::Receiver<Touch>,
    events: &mpsc::Sender<Event>,
    until: impl Future<Output = T>,
) -> Result<T> {
    let mut until = pin!(until);
    loop {
        tokio::select! {
            biased;
            done = &mut until => return Ok(done),
            Some(asked) = touches.recv() => {
                pass(events, Event::Touched(Touched { id: asked.id, answer: None })).await?;
            }
        }
    }
}
