//! Checks marker keys just after their deadlines: a read makes the server expire and announce them.
//!
//! By itself, a server expires a key when it comes across the key, which takes minutes among a million others. The check
//! follows two milliseconds after the deadline. In the millisecond of its deadline, a key still exists, and the server's
//! clock inside a command may lag slightly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::log::debug;
use crate::wire::{MAX_BATCH, Store};

/// The time from a deadline to the check of its key.
const CHECK_DELAY: Duration = Duration::from_millis(2);
/// The pause between two calls. Without it, these calls would be most of all requests at a high rate.
const MARKER_CHECK_PAUSE: Duration = Duration::from_millis(50);
/// The maximum number of waiting batches, and of bytes of their keys. Further keys are left to the server.
const MAX_WAITING_BATCHES: usize = 1024;
const MAX_WAITING_BYTES: usize = 8 << 20;
/// The approximate maximum bytes of keys in one call.
const MAX_CALL_BYTES: usize = 1 << 20;

/// The queue of marker keys to check, into which claimers put the keys of claimed timers.
#[derive(Clone, Debug)]
pub(crate) struct MarkerChecks {
    queue: mpsc::Sender<MarkerBatch>,
    /// The bytes of the waiting keys.
    bytes: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct MarkerBatch {
    at: Instant,
    keys: Vec<Bytes>,
    bytes: usize,
}

impl MarkerChecks {
    /// Plans to check these keys once the latest of their deadlines has passed.
    pub(crate) fn plan(&self, latest: Option<Instant>, keys: impl Iterator<Item = Bytes>) {
        let Some(latest) = latest else { return };
        let at = latest.max(Instant::now()) + CHECK_DELAY;
        let (mut keys, mut more) = (keys.peekable(), true);
        while more && keys.peek().is_some() {
            let mut batch = MarkerBatch { at, keys: Vec::new(), bytes: 0 };
            while batch.bytes < MAX_CALL_BYTES
                && let Some(key) = keys.next()
            {
                batch.bytes += key.len();
                batch.keys.push(key);
            }
            more = self.enqueue(batch);
        }
    }

    /// Queues a batch if the queue has room, and returns whether it had.
    fn enqueue(&self, batch: MarkerBatch) -> bool {
        let bytes = batch.bytes;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before + bytes <= MAX_WAITING_BYTES && self.queue.try_send(batch).is_ok();
        if !has_room {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }
}

/// Returns the queue for claimers, and the task that checks the keys.
pub(crate) fn marker_checks(store: Store) -> (MarkerChecks, impl Future<Output = ()> + Send) {
    let (queue, mut batches) = mpsc::channel::<MarkerBatch>(MAX_WAITING_BATCHES);
    let bytes = Arc::<AtomicUsize>::default();
    let waiting = bytes.clone();
    let work = async move {
        let (mut later, mut next_call_at) = (None, Instant::now());
        while let Some(first) = next_batch(&mut later, &mut batches).await {
            tokio::time::sleep_until(first.at.max(next_call_at)).await;
            let now = Instant::now();
            let (mut keys, mut call_bytes) = (first.keys, first.bytes);
            while keys.len() < MAX_BATCH && call_bytes < MAX_CALL_BYTES {
                match batches.try_recv() {
                    Ok(more) if more.at <= now => {
                        call_bytes += more.bytes;
                        keys.extend(more.keys);
                    }
                    other => {
                        later = other.ok();
                        break;
                    }
                }
            }
            if let Err(error) = store.check_markers(&keys).await {
                debug!(%error, "cannot read marker keys: the server expires them later");
            }
            waiting.fetch_sub(call_bytes, Ordering::Relaxed);
            // A full call needs no pause, as waiting would gather no more keys for it.
            next_call_at = if keys.len() < MAX_BATCH && call_bytes < MAX_CALL_BYTES {
                now + MARKER_CHECK_PAUSE
            } else {
                now
            };
        }
    };
    (MarkerChecks { queue, bytes }, work)
}

async fn next_batch(
    later: &mut Option<MarkerBatch>,
    batches: &mut mpsc::Receiver<MarkerBatch>,
) -> Option<MarkerBatch> {
    match later.take() {
        Some(batch) => Some(batch),
        None => batches.recv().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    const MS: Duration = Duration::from_millis(1);

    fn keys(count: usize) -> impl Iterator<Item = Bytes> {
        std::iter::repeat_n(Bytes::from_static(b"a:1"), count)
    }

    /// Plans batches of `size` keys whose deadlines are `distance` apart. Returns the number of calls, and the time
    /// from the last deadline to the end.
    async fn touched(batches: u32, size: usize, distance: Duration) -> (usize, Duration) {
        let bed = Rig::new();
        let (touches, work) = marker_checks(bed.client().store.clone());
        let start = Instant::now();
        (0..batches).for_each(|number| touches.plan(Some(start + distance * number), keys(size)));
        drop(touches);
        work.await;
        (bed.calls().made("touch").len(), start.elapsed().saturating_sub(distance * (batches - 1)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_key_is_touched_just_after_its_deadline() {
        assert_eq!(touched(1, 1, MS).await, (1, CHECK_DELAY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_keys_is_touched_twenty_times_a_second() {
        let (calls, last) = touched(1000, 1, MS).await;
        assert!((20..=22).contains(&calls), "{calls} calls");
        assert!(last <= CHECK_DELAY + MARKER_CHECK_PAUSE + MS, "{last:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_beyond_eight_mebibytes_are_left_to_the_server_and_a_call_takes_one() {
        let bed = Rig::new();
        let (touches, work) = marker_checks(bed.client().store.clone());
        let key = Bytes::from(vec![b'k'; 4096]);
        for _ in 0..10 {
            touches.plan(Some(Instant::now()), std::iter::repeat_n(key.clone(), MAX_BATCH));
        }
        assert!(touches.bytes.load(Ordering::Relaxed) <= MAX_WAITING_BYTES);
        let left = touches.clone();
        drop(touches);
        assert_eq!(left.queue.max_capacity() - left.queue.capacity(), 8, "a mebibyte each");
        let bytes = left.bytes.clone();
        drop(left);
        work.await;
        // The last batch of a claim is not quite full, and shares a call with the next one.
        assert_eq!((bed.calls().made("touch").len(), bytes.load(Ordering::Relaxed)), (7, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_keys_as_a_call_takes_wait_for_nothing() {
        let (calls, last) = touched(100, MAX_BATCH, Duration::ZERO).await;
        assert_eq!(calls, 100);
        assert!(last < CHECK_DELAY + MARKER_CHECK_PAUSE, "{last:?}");
    }
}
