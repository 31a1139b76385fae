//! C6: a server that may evict what it pleases is complained of, at the start and when it becomes one.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keylapse_support::{Server, eventually};
use keylapse_wire::Store;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::scene::{Running, Tally, listener, topic};

/// Settings are looked at once a minute.
const A_MINUTE: Duration = Duration::from_secs(90);

/// What is said on this thread about eviction.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<Vec<(Level, String)>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name()); // a String takes everything
    }
}

impl<S: Subscriber> Layer<S> for Complaints {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("may evict") {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((*event.metadata().level(), text.0));
        }
    }
}

impl Complaints {
    /// For tests on one thread.
    fn hear() -> (Self, tracing::subscriber::DefaultGuard) {
        let this = Self::default();
        let heard = tracing_subscriber::registry().with(this.clone());
        (this, keylapse_support::subscribe(heard))
    }

    fn levels(&self) -> Vec<Level> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(level, _)| *level).collect()
    }
}

async fn set_policy(server: &Server, policy: &str) {
    server.cmd(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", policy]).await;
}

#[tokio::test]
async fn c6_each_change_to_a_policy_that_evicts_is_complained_of_once() {
    let (complaints, _guard) = Complaints::hear();
    let server = Server::start().await;
    let store = Store::at(&server.app_url()).expect("a store");
    let said_at = [
        ("noeviction", vec![]),
        ("allkeys-lru", vec![Level::ERROR]),
        ("volatile-ttl", vec![Level::ERROR, Level::WARN]),
        ("noeviction", vec![Level::ERROR, Level::WARN]),
        ("allkeys-random", vec![Level::ERROR, Level::WARN, Level::ERROR]),
    ];
    for (policy, said) in said_at {
        set_policy(&server, policy).await;
        for _ in 0..2 {
            store.check_settings(false).await.expect("settings can be read");
            assert_eq!(complaints.levels(), said, "{policy}");
        }
    }
}

#[tokio::test]
async fn c6_a_listener_complains_at_the_start_and_of_what_changes_within_about_a_minute() {
    let (complaints, _guard) = Complaints::hear();
    let server = Server::start().await;
    set_policy(&server, "volatile-lru").await;
    let topic = topic(Duration::from_secs(5));
    let running = Running::start(listener(&server).on(topic, Tally::default().handler()));
    running.anchored().await;
    assert_eq!(complaints.levels(), [Level::WARN], "trigger keys may go, the index may not");
    set_policy(&server, "allkeys-lru").await;
    let noticed = async || complaints.levels() == [Level::WARN, Level::ERROR];
    eventually(A_MINUTE, "the change to be noticed", noticed).await;
    running.stop().await;
}
