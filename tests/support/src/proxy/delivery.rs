//! Writes one direction of a connection, with the delays of its weather.

use std::{io, num::NonZeroUsize};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::faults::Weather;

/// A delayed connection needs a long queue for its throughput. The queue is bounded, so that a stalled connection stops
/// reading, like a network with full buffers.
const MAX_QUEUED_PARCELS: usize = 1_024;

/// Bytes that are not yet written.
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
    mpsc::channel(MAX_QUEUED_PARCELS)
}

/// Writes parcels until the sender is dropped and the queue is empty.
///
/// The delay of a parcel starts when it is posted. It is a latency, and does not limit the throughput.
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
        // This cannot fail, because `Shared` owns the sender and outlives the connection.
        let _ = weather.wait_for(|weather| !weather.is_stalled).await;
        let chunk = weather.borrow().chunk;
        write(&mut to, &parcel.bytes, chunk).await?;
    }
    Ok(())
}

/// Writes the bytes in pieces of `chunk` bytes, each in its own TCP segment if the kernel permits.
async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    chunk: Option<NonZeroUsize>,
) -> io::Result<()> {
    for piece in bytes.chunks(chunk.unwrap_or(NonZeroUsize::MAX).get()) {
        to.write_all(piece).await?;
        // TLS buffers bytes until a flush.
        to.flush().await?;
        // The reader can read this piece before the next arrives.
        tokio::task::yield_now().await;
    }
    Ok(())
}
