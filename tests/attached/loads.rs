//! The server loads its data set while keys are due, and drops them without a word.

use std::time::Duration;

use keylapse::{ArmResult, Done, Expiry, Lapse, NewArm, Schedule, Topic};
use keylapse_support::{Fsync, Server, eventually, skipped_on_a_cluster};
use redis::pipe;

use crate::recovery::{by_key, write_many};
use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, Running, enrolled, now, orders_with_values, until_later_key,
    until_time,
};

const KEYS: u64 = 1000;

/// Has the server load its data set right after it has stood still for this long: so nothing finds what is due then.
async fn load(server: &Server, seconds: &str, how: &str) {
    let mut steps = pipe();
    steps.cmd("DEBUG").arg("SLEEP").arg(seconds).ignore();
    steps.cmd("DEBUG").arg(how).ignore();
    steps.exec_async(&mut server.conn().await).await.unwrap();
}

async fn harness(how: &str, flags: &str) -> Harness {
    let server = Server::builder().config("notify-keyspace-events", flags);
    let server = if how == "LOADAOF" { server.aof(Fsync::EverySecond) } else { server };
    let topic = orders_with_values().scan_every(Duration::from_millis(300));
    Harness::on(server.start().await, topic, Notes::handler).await
}

async fn scene(how: &str, flags: &str) {
    let harness = harness(how, flags).await;
    let from = now() + 6000;
    write_many(&harness.server, KEYS, from).await;
    eventually(PATIENCE, "all to be enrolled", async || {
        enrolled(&harness.server).await == i64::try_from(KEYS).unwrap()
    })
    .await;
    until_time(from - 100).await;
    load(&harness.server, "1.2", how).await;
    let Harness { server, notes, listener, .. } = harness;
    let all = usize::try_from(KEYS).unwrap();
    eventually(PATIENCE, "all to fire", async || notes.are_of(all)).await;
    until_later_key(&server, &notes).await;
    for (key, runs) in by_key(&notes) {
        let explained = runs.iter().any(|run| run.expiry == Expiry::Ambiguous);
        assert!(runs.len() == 1 || explained, "{how} {flags}: {key} {runs:?}");
        assert!(runs.iter().all(|run| run.at >= run.deadline), "{how} {flags}: {key} {runs:?}");
    }
    if how == "RELOAD" {
        assert!(listener.attached().recovered > 0, "the server has dropped some");
    }
    listener.stop().await;
}

#[tokio::test]
async fn what_is_due_while_the_data_set_is_loaded_anew_is_recovered() {
    if skipped_on_a_cluster("the load takes the node out of it") {
        return;
    }
    for flags in [ALL_FLAGS, "Ex"] {
        scene("RELOAD", flags).await;
    }
}

#[tokio::test]
async fn what_is_due_while_the_log_is_loaded_fires_once() {
    if skipped_on_a_cluster("the load takes the node out of it") {
        return;
    }
    scene("LOADAOF", ALL_FLAGS).await;
}

/// What a key was deleted before tells nothing of later ones.
#[tokio::test]
async fn what_is_deleted_after_a_load_does_not_fire() {
    let harness = harness("RELOAD", ALL_FLAGS).await;
    load(&harness.server, "0", "RELOAD").await;
    let deadline = harness.enrol("1", "a sofa", 2000).await;
    harness.cmd(&["DEL", "app:order:1"]).await;
    harness.pass(deadline).await;
    assert!(harness.of("1").is_empty(), "{:?}", harness.of("1"));
    harness.listener.stop().await;
}

#[tokio::test]
async fn timers_are_not_disturbed_by_a_load() {
    const TIMERS: u64 = 500;
    let server = Server::builder().config("notify-keyspace-events", ALL_FLAGS).start().await;
    let (notes, topic) = (Notes::default(), Topic::<u64>::new("app:timer:{id}").unwrap());
    let (ran, runs) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |lapse: Lapse<u64>| {
        ran.send((*lapse.payload(), now())).unwrap();
        std::future::ready(Ok::<_, keylapse::Failure>(Done))
    };
    let listener = Running::start(&server, |builder| {
        builder.on(topic.clone(), handler).attach(orders_with_values(), notes.handler())
    });
    eventually(PATIENCE, "an anchor", async || listener.hears()).await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let from = now() + 5000;
    let arms = (0..TIMERS).map(|number| {
        let due = from + 3 * number;
        NewArm::new(number.to_string(), Duration::from_millis(due.saturating_sub(now())), due)
    });
    let armed = schedule.arm_many(&topic, arms).await.unwrap();
    assert!(armed.iter().all(|armed| armed.as_ref().is_ok_and(ArmResult::is_armed)), "{armed:?}");
    assert!(now() < from, "armed before the load");
    until_time(from).await;
    load(&server, "0.5", "RELOAD").await;
    let mut runs = runs;
    let mut due: std::collections::BTreeSet<_> = (0..TIMERS).map(|number| from + 3 * number).collect();
    while !due.is_empty() {
        let run = tokio::time::timeout(PATIENCE, runs.recv()).await.expect("it runs").unwrap();
        assert!(run.1 >= run.0, "early: {run:?}");
        assert!(due.remove(&run.0), "twice: {run:?}");
    }
    listener.stop().await;
    assert!(runs.recv().await.is_none(), "each has run once");
}
