//! Panics of code that is not ours: of handlers, of their values, of whoever reads the log. None of them may end
//! what keeps timers, nor lock it up.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;

use crate::escape::text_of;

/// Calls what may panic; the panic's message in place of an answer.
pub fn contained<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(message)
}

/// Returns a panic's text; a long one without its middle. Its value is dropped, and may panic in turn.
pub fn message(panic: Box<dyn Any + Send>) -> String {
    let text = text_of(panic_message(&*panic));
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(another); // or there would be no end of it
    }
    text
}

/// Returns the text that a panic carries.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

/// A future whose panics stay within: when it runs, and when it is dropped.
#[derive(Debug)]
pub struct Contained<F>(Option<F>);

impl<F> Contained<F> {
    /// The same future; its panics are its errors.
    pub fn new(future: F) -> Self {
        Self(Some(future))
    }

    fn end(&mut self) {
        let future = self.0.take();
        let _ = contained(|| drop(future));
    }
}

impl<F: Future + Unpin> Future for Contained<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let ended = match contained(|| Pin::new(future).poll(context)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => Ok(answer),
            Err(panic) => Err(panic),
        };
        self.end();
        Poll::Ready(ended)
    }
}

impl<F> Drop for Contained<F> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes a lock. That somebody panicked while holding it is no reason for everybody else to fail.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns once this holds of what lies under the lock. Whoever changes that tells those who wait.
pub async fn until<T>(mutex: &Mutex<T>, changed: &Notify, holds: impl Fn(&T) -> bool) {
    loop {
        // Before the check: so it hears of each later change.
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

    /// Panics whenever it is dropped, with another of its kind.
    struct Hostile;

    impl Drop for Hostile {
        fn drop(&mut self) {
            panic_any(Hostile);
        }
    }

    #[test]
    fn what_a_panic_carries_may_panic_when_it_is_dropped() {
        assert_eq!(contained(|| panic_any(Hostile)).unwrap_err(), "a panic without a message");
        assert_eq!(contained(|| panic!("as {}", "said")).unwrap_err(), "as said");
        assert_eq!(contained(|| 1), Ok(1));
    }
}
