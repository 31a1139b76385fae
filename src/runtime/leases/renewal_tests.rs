//! The state of a lease at the moment when a renewal wakes the tasks that wait for it.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::id::Token;

const TRUST: Duration = Duration::from_secs(1);

fn held(key: &'static str) -> LeaseRef {
    LeaseRef { key: Bytes::from_static(key.as_bytes()), token: Token([1; 8]) }
}

/// Reads the state of a lease at each wake-up, as a waiting attempt on another thread does.
struct Asking {
    state: Arc<LeaseState>,
    seen: Mutex<Vec<bool>>,
}

impl Wake for Asking {
    fn wake(self: Arc<Self>) {
        self.seen.lock().expect("no thread has panicked").push(self.state.is_ours());
    }
}

/// Returns what a waiting attempt of `key` reads while a renewal of both leases finds that "lost" is lost.
async fn seen_while_waiting(key: &'static str) -> Vec<bool> {
    let leases = Arc::new(Leases::new(TRUST, TRUST));
    let both = ["lost", "kept"].map(held);
    let mut owners = leases.add(both.clone(), now());
    tokio::time::advance(TRUST * 2).await;
    let waiting = owners.remove(usize::from(key == "kept"));
    let asking = Arc::new(Asking { state: waiting.state.clone(), seen: Mutex::default() });
    let mut waits = std::pin::pin!(waiting.confirm());
    let waker = Waker::from(asking.clone());
    assert_eq!(waits.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(leases.apply_renewal(&both, &[&both[0]], now()), 1);
    let seen = asking.seen.lock().expect("no thread has panicked").clone();
    assert_eq!(waits.await, key == "kept");
    seen
}

#[tokio::test(start_paused = true)]
async fn what_a_renewal_finds_lost_is_never_called_ours() {
    assert_eq!(seen_while_waiting("lost").await, [false]);
}

#[tokio::test(start_paused = true)]
async fn what_a_renewal_extends_is_ours_at_once() {
    assert_eq!(seen_while_waiting("kept").await, [true]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_only_what_was_ours() {
    let leases = Arc::new(Leases::new(TRUST, TRUST));
    let [ours, others] = ["ours", "others"].map(held);
    let lease = leases.add([ours.clone()], now()).remove(0);
    assert_eq!(leases.apply_renewal(&[ours.clone(), others.clone()], &[&ours, &others], now()), 1);
    assert!(!lease.is_held());
}
