//! A server with what the screens show.

use std::time::Duration;

use keylapse::{Schedule, Topic};
use keylapse_console::{Console, Export};
use keylapse_support::Server;

use crate::top::terminal::cannot_run;

/// What would be a command to a terminal.
const ERROR: &str = "boom\u{1b}[2J\u{1b}]0;owned\u{7}\r\n\u{202e}and no more";

pub(crate) fn orders() -> Topic<String> {
    Topic::named("order.unpaid", "order:unpaid:{id}").unwrap()
}

/// A server with all of this; none where no terminal can be had.
pub(crate) async fn shop() -> Option<Server> {
    if cannot_run() {
        return None;
    }
    let server = Server::start().await;
    populate(&server).await;
    Some(server)
}

/// Timers, and a dead letter.
pub(crate) async fn populate(server: &Server) {
    let schedule = Schedule::connect(server.plain_url().as_str()).await.unwrap();
    for id in 1..=30_u64 {
        let armed =
            schedule.arm(&orders(), id, Duration::from_secs(3600 + id), &"Ada".to_owned()).await.unwrap();
        assert!(armed.receipt().is_some());
    }
    let mails = Topic::<String>::named("mail.reminder", "mail:{id}").unwrap();
    let armed = schedule.arm(&mails, "a\u{1b}[2J", Duration::from_secs(60), &String::new()).await.unwrap();
    assert!(armed.receipt().is_some());
    bury(server, "dead", "00000000000000a7").await;
}

/// A dead letter more, with this id.
pub(crate) async fn bury(server: &Server, key: &str, id: &str) {
    let letter: Export = serde_json::from_value(serde_json::json!({
        "v": 1, "type": "dead_letter", "topic": "order.unpaid", "key": format!("order:unpaid:{key}"), "id": id,
        "deadline_ms": 1_795_599_000_000_u64, "at_ms": 1_795_599_060_000_u64, "reason": "exhausted", "attempt": 5,
        "payload": "\"Ada\"",
        "failures": [{"attempt": 5, "at": 1_795_599_060_000_u64, "kind": "error", "error": ERROR}],
    }))
    .unwrap();
    let topic = console(server).await.topic("order.unpaid").await.unwrap();
    assert_eq!(topic.import(&[letter]).await.unwrap().imported, 1);
}

pub(crate) async fn console(server: &Server) -> Console {
    Console::connect(server.plain_url().as_str()).await.unwrap()
}
