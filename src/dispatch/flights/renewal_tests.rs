//! What those who wait are told by a renewal, at the very moment that it wakes them.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio::time::Instant;

use super::*;
use crate::id::Token;

const TRUST: Duration = Duration::from_secs(1);

fn held(key: &'static str) -> Held {
    Held { key: Bytes::from_static(key.as_bytes()), token: Token([1; 8]) }
}

/// Asks again whenever it is woken, as a waiting attempt on another thread does.
struct Asking {
    flights: Arc<Flights>,
    key: &'static str,
    told: Mutex<Vec<bool>>,
}

impl Wake for Asking {
    fn wake(self: Arc<Self>) {
        let told = self.flights.trusted(&held(self.key), TRUST).now_or_never();
        self.told.lock().expect("no panic").extend(told);
    }
}

/// What an attempt of `key` is told that waits while a renewal of both finds that "lost" is lost.
async fn told(key: &'static str) -> Vec<bool> {
    let flights = Arc::new(Flights::default());
    let both = ["lost", "kept"].map(held);
    let boarding = both.iter().map(|held| (held.clone(), Arc::default()));
    flights.board(boarding, Instant::now());
    tokio::time::advance(TRUST * 2).await;
    let asking = Arc::new(Asking { flights: flights.clone(), key, told: Mutex::default() });
    let waiting = held(key);
    let mut waits = std::pin::pin!(flights.trusted(&waiting, TRUST));
    let waker = Waker::from(asking.clone());
    assert_eq!(waits.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(flights.renewed(&both, &[&both[0]], Instant::now()), 1);
    asking.told.lock().expect("no panic").clone()
}

#[tokio::test(start_paused = true)]
async fn what_a_renewal_finds_lost_is_never_called_ours() {
    assert_eq!(told("lost").await, [false]);
}

#[tokio::test(start_paused = true)]
async fn what_a_renewal_extends_is_ours_at_once() {
    assert_eq!(told("kept").await, [true]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_only_what_was_ours() {
    let flights = Flights::default();
    let [ours, others] = ["ours", "others"].map(held);
    flights.board([(ours.clone(), Arc::default())].into_iter(), Instant::now());
    assert_eq!(flights.renewed(&[ours.clone(), others.clone()], &[&ours, &others], Instant::now()), 1);
    assert!(!flights.holds(&ours));
}
