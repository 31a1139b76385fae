//! The server to throw away.

use std::time::Duration;

use keylapse::internals::Store;
use keylapse::testing::{FaultyStore, Server};
use keylapse::{Listener, Schedule};
use tokio::sync::mpsc;

use crate::support::{ms, reminders};

#[tokio::test]
async fn a_server_answers_as_long_as_it_is_kept() {
    let server = Server::start().await.expect("`make test` finds or fetches a server");
    assert!(Server::is_installed());
    let (url, other) = (server.url(), Server::start().await.expect("more than one can run"));
    assert_ne!(url, other.url());
    Schedule::connect(&url).await.expect("it answers");
    drop(server);
    Schedule::connect(&url).await.expect_err("it is gone");
}

#[tokio::test]
async fn the_notifications_of_a_real_server_can_be_lost() {
    let server = Server::start().await.expect("`make test` finds or fetches a server");
    let store = FaultyStore::new(Store::at(&server.url()).unwrap());
    let (ran, mut runs) = mpsc::unbounded_channel();
    let handler = move |lapse: keylapse::Lapse<String>| {
        let ran = ran.clone();
        async move { ran.send(lapse.source()) }
    };
    let listener = Listener::builder_on(store.clone()).on(reminders(), handler).build().unwrap();
    store.notifications().silence();

    let schedule = Schedule::on_store(store.clone());
    let story = async {
        for id in ["a", "b"] {
            let armed = schedule.arm(&reminders(), [id], ms(100), &String::new()).await;
            assert!(armed.expect("the server answers").is_armed());
            let run = tokio::time::timeout(Duration::from_secs(30), runs.recv()).await;
            assert!(run.expect("a sweep finds it").is_some());
        }
    };
    listener.run_until(story).await.unwrap();
    assert_eq!(store.notifications().heard(), 0);
}
