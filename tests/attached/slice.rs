//! From another program's `SET … PX` to the handler, with each set of flags.

use keylapse::Expiry;
use keylapse::health::EventMode;

use crate::scene::{ALL_FLAGS, Notes, Running, orders_with_values, server};

#[tokio::test]
async fn with_all_flags_a_key_is_enrolled_when_it_is_written_and_its_value_is_handed_over() {
    let server = server(ALL_FLAGS).await;
    let notes = Notes::default();
    let listener = Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    listener.until_mode(EventMode::Changes).await;
    server.cmd(&["SET", "app:order:1", "a sofa", "PX", "1000"]).await;
    listener.until_enrolled(1).await;
    notes.until(1).await;
    let run = notes.runs()[0].clone();
    println!("{run:?}");
    assert_eq!(
        (run.key.as_str(), run.text(), run.expiry),
        ("app:order:1", Some("a sofa"), Expiry::Announced)
    );
    assert!(run.deadline_known && run.attempt == 1);
    listener.stop().await;
}

#[tokio::test]
async fn with_ex_alone_keys_are_found_by_scanning() {
    let server = server("Ex").await;
    server.cmd(&["SET", "app:order:1", "a sofa", "PX", "3000"]).await;
    let notes = Notes::default();
    let listener = Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    listener.until_mode(EventMode::Expired).await;
    listener.until_enrolled(1).await;
    // Too late for the scan, and heard all the same.
    server.cmd(&["SET", "app:order:2", "a lamp", "PX", "100"]).await;
    notes.until(2).await;
    let [sofa, lamp] = [&notes.of("app:order:1")[0], &notes.of("app:order:2")[0]].map(Clone::clone);
    println!("{sofa:?} {lamp:?}");
    assert_eq!((sofa.text(), lamp.text()), (Some("a sofa"), None));
    assert!(sofa.deadline_known && !lamp.deadline_known);
    listener.stop().await;
}

#[tokio::test]
async fn without_notifications_keys_are_found_and_looked_at() {
    let server = server("").await;
    server.cmd(&["SET", "app:order:1", "a sofa", "PX", "3000"]).await;
    let notes = Notes::default();
    let listener = Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    listener.until_mode(EventMode::ScanOnly).await;
    notes.until(1).await;
    let run = notes.runs()[0].clone();
    println!("{run:?}");
    assert_eq!((run.text(), run.expiry), (Some("a sofa"), Expiry::Recovered));
    listener.stop().await;
}
