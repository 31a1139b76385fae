//! A line that takes its time, for unit tests.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// This stream, on which everything arrives so much later, each way.
pub(crate) fn slow_line<S>(far: S, delay: Duration) -> DuplexStream
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (near, middle) = duplex(1 << 20);
    let ((reads, writes), (far_reads, far_writes)) = (split(middle), split(far));
    carry(reads, far_writes, delay);
    carry(far_reads, writes, delay);
    near
}

fn carry(
    mut from: impl AsyncRead + Send + Unpin + 'static,
    mut to: impl AsyncWrite + Send + Unpin + 'static,
    delay: Duration,
) {
    let (sent, mut arriving) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let _ = sent.send((Instant::now() + delay, bytes[..read].to_vec()));
        }
    });
    tokio::spawn(async move {
        while let Some((at, bytes)) = arriving.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}
