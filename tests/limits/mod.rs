//! Limits hold for each call, and values of any size are refused or do what they say.

mod definitions;
mod methods;
mod texts;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Far longer than anything here takes: two seconds of a processor, which a dozen tests and two other programs may share.
const DEADLINE: Duration = Duration::from_secs(90);

/// Does something on a thread of its own, which may take no longer than the deadline.
///
/// # Panics
/// If it does, or if it panics.
#[track_caller]
fn within_deadline<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    ends(work).unwrap_or_else(|why| panic!("{what} {why}"))
}

/// The same, or why not.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (sender, done) = channel();
    let worker = thread::spawn(move || sender.send(work()));
    match done.recv_timeout(DEADLINE) {
        Ok(answer) => Ok(answer),
        Err(RecvTimeoutError::Timeout) => Err("hangs".to_owned()),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = worker.join().unwrap_err();
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Err(format!("panics: {said}"))
        }
    }
}
