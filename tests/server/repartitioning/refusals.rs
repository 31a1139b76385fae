//! What is refused, and leaves the topic as it was.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use keylapse::{Attached, Client, Done, ErrorKind, Failure, Lapse, Schedule, Topic};
use keylapse_console::Console;
use keylapse_support::{Server, eventually};
use keylapse_wire::{RepartitionChange, RepartitionStep};

use super::contents::{Contents, fill, meta, partition};
use super::{LONG, orders};
use crate::server::console;
use crate::server::support::{PATIENCE, Running, gated, listener, server_and_schedule};

#[tokio::test]
async fn what_cannot_be_repartitioned_is_refused_with_what_to_do() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    let attached = Attached::new(orders());
    for (topic, to, why) in [
        (orders(), 8, "topic order is not in Redis: there is nothing to repartition"),
        (orders(), 0, "partitions must be 1 to 1,024"),
        (orders(), 1025, "partitions must be 1 to 1,024"),
        (attached.topic().clone(), 8, "call Console::detach, and start the listeners with `.partitions(8)`"),
    ] {
        let refused = console.repartition(&topic, to).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[tokio::test]
async fn a_topic_that_is_attached_in_redis_is_refused_whatever_the_caller_says() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    let attached = Attached::new(orders());
    let nothing = |_: Lapse<keylapse::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
    let running = Running::start(listener(&server).attach(attached, nothing));
    running.until_anchored().await;
    let refused = console.repartition(&orders(), 8).await.unwrap_err();
    assert!(refused.to_string().contains("is attached, and cannot be repartitioned"), "{refused}");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_run_are_waited_for_and_then_the_topic_is_as_before() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let (handler, mut started, gate) = gated(|lapse: &Lapse<u32>| *lapse.payload());
    let running = Running::start(listener(&server).on(orders(), handler));
    assert!(schedule.arm(&orders(), "runs", Duration::ZERO, &1).await.unwrap().is_armed());
    assert_eq!(started.next().await, 1);
    let refused = console.repartition(&orders(), 8).wait(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    assert!(refused.to_string().contains("still run, such as that of \"app:order:runs\""), "{refused}");
    assert_eq!(meta(&server, 0, "paused").await, None);
    assert!(schedule.arm(&orders(), "next", Duration::ZERO, &2).await.unwrap().is_armed());
    assert_eq!(started.next().await, 2, "claims go on");

    let moving = tokio::spawn({
        let console = console.clone();
        async move { console.repartition(&orders(), 8).await }
    });
    eventually(PATIENCE, "the pause", async || meta(&server, 3, "paused").await.is_some()).await;
    assert!(
        schedule.arm(&orders(), "meanwhile", LONG, &3).await.unwrap().is_armed(),
        "arms go on while it waits"
    );
    gate.notify_one();
    gate.notify_one();
    let done = moving.await.unwrap().unwrap();
    assert!(done.closed_for < PATIENCE, "{done:?}");
    running.until("both to have ended well", |stats| stats.total().handled == 2).await;
    let wider = orders().partitions(8);
    assert!(schedule.look_up(&wider, "meanwhile").await.unwrap().is_some());
    assert!(schedule.look_up(&wider, "runs").await.unwrap().is_none());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn whoever_resumes_the_topic_takes_the_change_back() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let (handler, mut started, gate) = gated(|lapse: &Lapse<u32>| *lapse.payload());
    let running = Running::start(listener(&server).on(orders(), handler));
    schedule.pause(&orders(), "inventory").await.unwrap();
    schedule.resume(&orders()).await.unwrap();
    assert!(schedule.arm(&orders(), "runs", Duration::ZERO, &1).await.unwrap().is_armed());
    started.next().await;
    let moving = tokio::spawn({
        let console = console.clone();
        async move { console.repartition(&orders(), 8).await }
    });
    eventually(PATIENCE, "the pause", async || meta(&server, 3, "paused").await.is_some()).await;
    schedule.resume(&orders()).await.unwrap();
    gate.notify_one();
    let refused = moving.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    assert!(refused.to_string().contains("was resumed"), "{refused}");
    assert!(schedule.arm(&orders(), "next", Duration::ZERO, &2).await.unwrap().is_armed());
    assert_eq!(started.next().await, 2);
    gate.notify_one();
    running.stop().await.unwrap();
}

/// The steps of a call that dies before it has moved anything.
async fn half_way(server: &Server, to: u32, how: &[(usize, RepartitionStep<'static>)]) {
    let store = Client::new(&server.app_url()).unwrap().store().clone();
    let id = keylapse_connection::id::RepartitionId::random();
    for (index, how) in how {
        let found = store
            .repartition_step(&partition(*index, 4), RepartitionChange { to, own: id, id }, *how)
            .await
            .unwrap();
        assert!(found.done, "{index} {how:?}: {found:?}");
    }
}

#[tokio::test]
async fn another_number_is_refused_until_the_first_is_reached() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    fill(&server, 4, 100).await;
    let before = Contents::of(&server, 4).await;
    half_way(&server, 8, &[(0, RepartitionStep::Pause), (1, RepartitionStep::Pause)]).await;
    let refused = console.repartition(&orders(), 6).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Repartitioning);
    assert!(refused.to_string().contains("is getting 8 partitions, and not 6"), "{refused}");
    // The number that it has takes it back.
    console.repartition(&orders(), 4).await.unwrap();
    before.assert_same(&Contents::of(&server, 4).await, "taken back");
    half_way(&server, 8, &[(0, RepartitionStep::Pause), (0, RepartitionStep::Close)]).await;
    for other in [4, 6] {
        let refused = console.repartition(&orders(), other).await.unwrap_err();
        assert!(
            refused.to_string().contains("call Console::repartition with 8, which ends that change"),
            "{refused}"
        );
    }
    console.repartition(&orders(), 8).await.unwrap();
    console.repartition(&orders(), 6).await.unwrap();
    before.assert_same(&Contents::of(&server, 6).await, "six");
}

#[tokio::test]
async fn a_pause_and_its_reason_go_along_and_another_is_not_lost() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    fill(&server, 4, 100).await;
    schedule.pause(&orders(), "inventory").await.unwrap();
    console.repartition(&orders(), 8).await.unwrap();
    for index in 0..8 {
        assert_eq!(meta(&server, index, "paused").await.as_deref(), Some("inventory"), "{index}");
    }
    schedule.resume(&orders().partitions(8)).await.unwrap();
    // Of one partition alone, as its dead letters are full: those that have its keys now wait, too.
    server.cmd(&["HSET", partition(5, 8).key("meta"), "paused", "full"]).await;
    console.repartition(&orders(), 16).await.unwrap();
    for index in 0..16 {
        let expected = (index % 8 == 5).then_some("full");
        assert_eq!(meta(&server, index, "paused").await.as_deref(), expected, "{index}");
    }
}

#[tokio::test]
async fn it_is_not_destroyed_meanwhile_nor_repartitioned_while_it_is_destroyed() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    fill(&server, 4, 100).await;
    let before = Contents::of(&server, 4).await;
    half_way(&server, 8, &[(0, RepartitionStep::Pause), (0, RepartitionStep::Close)]).await;
    let refused = console.destroy(&orders()).forced().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Repartitioning, "{refused}");
    console.repartition(&orders(), 8).await.unwrap();
    before.assert_same(&Contents::of(&server, 8).await, "after that");
    let store = Client::new(&server.app_url()).unwrap().store().clone();
    let id = keylapse_connection::id::DestroyId::random();
    for index in [5, 0] {
        store.close(&partition(index, 8), keylapse_wire::CloseMode::ByForce(id)).await.unwrap();
        let refused = console.repartition(&orders(), 4).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Destroying, "{refused}");
    }
}

#[tokio::test]
async fn a_missing_right_is_named_before_anything_is_closed() {
    let (server, schedule) = server_and_schedule().await;
    fill(&server, 4, 100).await;
    for (right, command) in [("-unlink", "unlink"), ("-zscan", "zscan"), ("-hscan", "hscan")] {
        server.cmd(&["ACL", "SETUSER", "poor", "on", ">pass", "+@all", "~*", "&*", right]).await;
        let poor = Console::connect(&*server.url_for("poor", "pass")).await.unwrap();
        let refused = poor.repartition(&orders(), 8).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission, "{refused}");
        server.cmd(&["ACL", "DELUSER", "poor"]).await;
        assert!(refused.to_string().contains(command) || refused.to_string().contains("ACL"), "{refused}");
        assert_eq!(meta(&server, 0, "paused").await, None, "{right}");
        assert!(schedule.cancel(&orders(), "nobody").await.is_ok(), "it is open");
    }
}

#[tokio::test]
async fn a_server_that_is_full_does_not_stop_it() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    fill(&server, 4, 300).await;
    let before = Contents::of(&server, 4).await;
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    console.repartition(&orders(), 8).await.unwrap();
    before.assert_same(&Contents::of(&server, 8).await, "on a full server");
}

/// What is left of partitions that are not needed any more goes with the topic.
#[tokio::test]
async fn a_topic_that_had_more_partitions_is_destroyed_with_all_of_them() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    fill(&server, 8, 100).await;
    console.repartition(&orders(), 3).await.unwrap();
    console.destroy(&orders().partitions(3)).forced().await.unwrap();
    assert_eq!(server.count(&[partition(7, 8).key("meta"), partition(0, 8).key("meta")]).await, 0);
    let wider = Topic::<u32>::named("order", "app:order:{id}").unwrap().partitions(8);
    let armed = Schedule::connect(&server.app_url()).await.unwrap();
    for id in 0..50 {
        assert!(armed.arm(&wider, id, LONG, &1).await.unwrap().is_armed());
    }
}
