//! The lateness of the machine itself: a thread that sleeps until each job is due, without a server.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::Outcome;
use crate::lateness::{due, report, whole_ms};
use crate::orders::Orders;
use crate::runs::{Starts, micros};

const LEAD: Duration = Duration::from_millis(500);

/// `run lateness`
pub(crate) async fn lateness(orders: &Orders) -> Outcome {
    let (first, rate, count) = (whole_ms(LEAD), orders.rate()?, orders.count);
    let (starts, runtime) = (Starts::new(count), tokio::runtime::Handle::current());
    let noting = starts.clone();
    let thread = std::thread::spawn(move || {
        for number in 0..count {
            sleep_until(due(first, rate, number));
            let noting = noting.clone();
            runtime.spawn(async move { noting.note(number) });
        }
    });
    starts.all().await;
    thread.join().map_err(|_| "the thread that sleeps has panicked")?;
    Ok(report(starts.taken(), |n| micros(due(first, rate, n))))
}

/// Sleeps like a timer whose deadline may move: it waits for a signal, which never comes here.
fn sleep_until(due: SystemTime) {
    let (mutex, signal) = (Mutex::new(()), Condvar::new());
    let mut guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    // An error means that the deadline has passed.
    while let Ok(left) = due.duration_since(SystemTime::now()) {
        guard = signal.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
