//! Messages that a carrier loses, repeats, puts off and turns around, from this server and from another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylapse_testserver::{MessageCarrier, Passage, PubSubMessage, TestServer, relay};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep};

use crate::redis_client::{ask, connect_over, message};

/// Says of each message what its payload asks for.
#[derive(Debug, Default)]
struct Obedient {
    closed: AtomicBool,
    arrived: AtomicUsize,
    taken: Mutex<Vec<String>>,
}

impl MessageCarrier for Obedient {
    fn take(&self, message: &PubSubMessage) -> Passage {
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        let passage = match text.as_str() {
            "lost" => Passage::NONE,
            "twice" => Passage { times: 2, ..Passage::DIRECT },
            text if text.starts_with("late") => Passage { late: Duration::from_secs(1), ..Passage::DIRECT },
            text if text.starts_with("turned") => {
                Passage { late: Duration::from_secs(1), overtakes: true, ..Passage::DIRECT }
            }
            _ => Passage::DIRECT,
        };
        self.taken.lock().expect("no test panics here").push(text);
        passage
    }

    fn arrived(&self, _: &PubSubMessage) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    fn admits(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }
}

/// A server, a client of it, what is pushed to the client, and who carries that: here, or in a relay.
async fn scene(
    relayed: bool,
) -> (TestServer, MultiplexedConnection, UnboundedReceiver<PushInfo>, Arc<Obedient>) {
    let (server, carrier) = (TestServer::new(), Arc::<Obedient>::default());
    let stream = if relayed {
        relay(server.connect(), 7, carrier.clone()).0
    } else {
        server.carry_by(carrier.clone());
        server.connect()
    };
    let (mut connection, mut pushed) = connect_over(stream).await;
    connection.subscribe("a").await.expect("subscribed");
    assert_eq!(pushed.recv().await.expect("a message").kind, PushKind::Subscribe);
    (server, connection, pushed, carrier)
}

fn say(server: &TestServer, payloads: &[&str]) {
    payloads.iter().for_each(|payload| _ = server.command(["PUBLISH", "a", payload]));
}

/// The next message, and how long it took.
async fn next(pushed: &mut UnboundedReceiver<PushInfo>) -> (String, Duration) {
    let began = Instant::now();
    let push = pushed.recv().await.expect("a connection");
    (message(&push).expect("a message").1, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn messages_get_to_a_connection_as_their_carrier_says() {
    for relayed in [false, true] {
        let (server, mut connection, mut pushed, carrier) = scene(relayed).await;
        let (now, second) = (Duration::ZERO, Duration::from_secs(1));
        say(&server, &["late", "lost", "twice", "b"]);
        for (said, after) in [("twice", now), ("twice", now), ("b", now), ("late", second)] {
            assert_eq!(next(&mut pushed).await, (said.to_owned(), after), "relayed: {relayed}");
        }
        say(&server, &["turned 1", "turned 2", "late"]);
        assert_eq!(ask(&mut connection, "ECHO hello").await, Ok("hello".to_owned()), "an answer overtakes");
        for (said, after) in [("turned 2", second), ("turned 1", now), ("late", now)] {
            assert_eq!(next(&mut pushed).await, (said.to_owned(), after), "relayed: {relayed}");
        }
        assert_eq!(carrier.arrived.load(Ordering::Relaxed), 7);
        assert_eq!(carrier.taken.lock().unwrap().len(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_has_subscribed_to_a_pattern_gets_everything_in_order() {
    for relayed in [false, true] {
        let (server, mut connection, mut pushed, _) = scene(relayed).await;
        connection.psubscribe("b*").await.unwrap();
        pushed.recv().await;
        let began = Instant::now();
        say(&server, &["late", "b"]);
        sleep(Duration::from_millis(400)).await;
        assert_eq!(ask(&mut connection, "ECHO hello").await, Ok("hello".to_owned()));
        assert_eq!(began.elapsed(), Duration::from_secs(1), "relayed: {relayed}");
        for said in ["late", "b"] {
            assert_eq!(message(&pushed.try_recv().unwrap()).unwrap().1, said, "before the answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_admits_nobody_ends_connections_that_subscribe_and_no_others() {
    for relayed in [false, true] {
        let (_server, mut connection, _pushed, carrier) = scene(relayed).await;
        carrier.closed.store(true, Ordering::Relaxed);
        assert_eq!(ask(&mut connection, "ECHO hello").await, Ok("hello".to_owned()));
        let refused = connection.psubscribe("b*").await.unwrap_err();
        assert!(refused.is_connection_dropped(), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_pushed_is_carried_by_nobody() {
    let (server, _connection, mut pushed, carrier) = scene(false).await;
    assert_eq!(server.push("a", "lost"), 1);
    assert_eq!(next(&mut pushed).await.0, "lost");

    let (stream, relayed) = relay(server.connect(), 7, carrier.clone());
    relayed.push("a", "lost");
    let (mut connection, mut pushed) = connect_over(stream).await;
    connection.subscribe("a").await.unwrap();
    pushed.recv().await;
    relayed.push("a", "lost");
    assert_eq!(next(&mut pushed).await.0, "lost");
    assert!(carrier.taken.lock().unwrap().is_empty());
    assert!(!relayed.is_closed());
    relayed.disconnect_subscriber();
    assert_eq!(pushed.recv().await.map(|push| push.kind), Some(PushKind::Disconnection));
    assert!(relayed.is_closed());
}
