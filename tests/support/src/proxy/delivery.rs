//! Writes one direction of a connection, as late as the weather there demands.

use std::{io, num::NonZeroUsize};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::faults::Weather;

/// Enough to keep a delayed line full, and few enough that a stalled one stops reading, as a
/// network does whose buffers are full.
const PARCELS: usize = 1_024;

/// Bytes on their way.
#[derive(Debug)]
pub(super) struct Parcel {
    bytes: Bytes,
    posted: Instant,
}

impl Parcel {
    pub(super) fn now(bytes: Bytes) -> Self {
        Self { bytes, posted: Instant::now() }
    }
}

pub(super) fn queue() -> (mpsc::Sender<Parcel>, mpsc::Receiver<Parcel>) {
    mpsc::channel(PARCELS)
}

/// Delivers until the sender is gone and all that it posted has been written.
///
/// Each parcel is late by the delay from when it was posted, so a delay is a latency: it does not
/// limit how much is under way at a time.
pub(super) async fn run(
    mut queue: mpsc::Receiver<Parcel>,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    while let Some(parcel) = queue.recv().await {
        let delay = weather.borrow().delay;
        if !delay.is_zero() {
            sleep_until(parcel.posted + delay).await;
        }
        // The other end of the watch lives as long as the connection: see `Shared`.
        let _ = weather.wait_for(|weather| !weather.is_stalled).await;
        let chunk = weather.borrow().chunk;
        write(&mut to, &parcel.bytes, chunk).await?;
    }
    Ok(())
}

/// All at once, or piece by piece, each in a segment of its own as far as the kernel lets us.
async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    chunk: Option<NonZeroUsize>,
) -> io::Result<()> {
    for piece in bytes.chunks(chunk.unwrap_or(NonZeroUsize::MAX).get()) {
        to.write_all(piece).await?;
        // TLS keeps some of it back, unless told.
        to.flush().await?;
        // The reader gets a chance to read this piece before the next one is there.
        tokio::task::yield_now().await;
    }
    Ok(())
}
