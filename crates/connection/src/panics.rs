//! Contains panics of foreign code: handlers, their values and log subscribers. A panic there must not stop or block the
//! tasks that keep timers.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;

use crate::escape::text_of;

/// Calls a function that may panic.
///
/// # Errors
/// The message of the panic.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(message)
}

/// Returns the text of a panic, without its middle if it is long. Drops the panic's value, whose destructor may panic too.
pub fn message(panic: Box<dyn Any + Send>) -> String {
    let text = text_of(panic_message(&*panic));
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(another); // its destructor could panic again, without end
    }
    text
}

/// Returns the text that a panic carries.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

/// A future that turns a panic of the inner future into an error, and discards a panic of its destructor.
#[derive(Debug)]
pub struct CatchPanic<F>(Option<F>);

impl<F> CatchPanic<F> {
    /// Wraps a future.
    pub fn new(future: F) -> Self {
        Self(Some(future))
    }

    fn end(&mut self) {
        let future = self.0.take();
        let _ = catch_panic(|| drop(future));
    }
}

impl<F: Future + Unpin> Future for CatchPanic<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let ended = match catch_panic(|| Pin::new(future).poll(context)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => Ok(answer),
            Err(panic) => Err(panic),
        };
        self.end();
        Poll::Ready(ended)
    }
}

impl<F> Drop for CatchPanic<F> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Locks a mutex. A panic of an earlier holder does not make this fail.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `holds` is true of the value in the mutex. Each change of the value must notify `changed`.
pub async fn wait_until<T>(mutex: &Mutex<T>, changed: &Notify, holds: impl Fn(&T) -> bool) {
    loop {
        // Created before the check, so that it receives every notification after the check.
        let changed = changed.notified();
        if holds(&lock(mutex)) {
            return;
        }
        changed.await;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// Panics when it is dropped, with another value of this type.
    struct Hostile;

    impl Drop for Hostile {
        fn drop(&mut self) {
            panic_any(Hostile);
        }
    }

    #[test]
    fn what_a_panic_carries_may_panic_when_it_is_dropped() {
        assert_eq!(catch_panic(|| panic_any(Hostile)).unwrap_err(), "a panic without a message");
        assert_eq!(catch_panic(|| panic!("as {}", "said")).unwrap_err(), "as said");
        assert_eq!(catch_panic(|| 1), Ok(1));
    }
}
