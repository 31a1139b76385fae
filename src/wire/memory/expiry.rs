//! The store's own expiry of trigger keys.
//!
//! A server comes across an expired key in its own time, and only then announces
//! it. Mostly a listener that touches the key is faster; this is for the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::wire::memory::Inner;
use crate::wire::types::Trigger;

/// How long after its deadline an untouched key expires: about what a server
/// with few keys and the default `hz` takes.
const LAG: Duration = Duration::from_millis(100);

/// Sees to it that these keys expire, if nobody touches, moves or drops them
/// before. Without a runtime or in manual time nothing happens by itself.
pub(super) fn expire(inner: &Arc<Inner>, triggers: &[Trigger]) {
    let Ok(runtime) = Handle::try_current() else { return };
    if !inner.clock.is_tokio() {
        return;
    }
    let mut due: Vec<(u64, Bytes)> = triggers.iter().map(|one| (one.deadline, one.key.clone())).collect();
    due.sort_unstable();
    let (store, clock) = (Arc::downgrade(inner), inner.clock.clone());
    runtime.spawn(async move {
        for (deadline, key) in due {
            let left = deadline.saturating_sub(clock.now().ms());
            tokio::time::sleep(Duration::from_millis(left) + LAG).await;
            // Nobody uses the store any more.
            let Some(store) = store.upgrade() else { return };
            store.touch(&[key]);
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::events::event::Event;
    use crate::wire::memory::MemoryStore;
    use crate::wire::Store;
    use tokio::time::Instant;

    use super::*;

    fn trigger(store: &MemoryStore, key: &'static str, ms: u64) -> Trigger {
        let deadline = store.0.clock.now().ms_ceil() + ms;
        Trigger { key: Bytes::from_static(key.as_bytes()), deadline, attempt: 1, moved: true }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_nobody_touches_expire_and_are_told_of() {
        let store = MemoryStore::new();
        let mut events = store.events(&[]);
        assert_eq!(events.recv().await, Some(Event::Anchored));
        let (late, soon) = (trigger(&store, "late", 9000), trigger(&store, "soon", 1000));
        store.set_triggers(&[late, soon]).await.unwrap();
        let began = Instant::now();
        for (key, after) in [("soon", 1000), ("late", 9000)] {
            assert_eq!(events.recv().await, Some(Event::Expired(key.into())));
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(after) && took <= Duration::from_millis(after + 102));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_set_again_lives_on() {
        let store = MemoryStore::new();
        let mut events = store.events(&[]);
        assert_eq!(events.recv().await, Some(Event::Anchored));
        let (first, again) = (trigger(&store, "a", 1000), trigger(&store, "a", 5000));
        store.set_triggers(&[first]).await.unwrap();
        store.set_triggers(&[again]).await.unwrap();
        let began = Instant::now();
        assert_eq!(events.recv().await, Some(Event::Expired("a".into())));
        assert!(began.elapsed() >= Duration::from_secs(5));
        let silence = tokio::time::timeout(Duration::from_secs(60), events.recv()).await;
        assert!(silence.is_err(), "it expires once");
    }
}
