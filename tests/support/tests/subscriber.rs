//! Tests of `tracing` subscribers for single tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, warn};

/// Counts events.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Subscriber for Count {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_gets_what_another_thread_logged_first() {
    let said = || warn!("a line");
    let count = Count::default();
    let _guard = keylapse_support::subscribe(count.clone());
    thread::spawn(said).join().expect("it does not panic");
    said();
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "events of this thread");
}
