//! A request that was held up on its way arrives after its repeat, and does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylapse::timers::ArmingId;
use keylapse::{ArmResult, Cancelled};
use keylapse_connection::id::CancelId;
use keylapse_support::{Direction, Proxy, Server, eventually, skipped_on_a_cluster};
use keylapse_wire::names::PartitionNames;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{CancelReply, NewTimer, OpFlags, Store, TopicEntry};
use redis::InfoDict;
use tokio::net::TcpStream;

use super::scene::{Scene, key};
use crate::produce::{Cancel, Produce};
use crate::server::support::PATIENCE;

fn timer(id: &str) -> NewTimer {
    NewTimer {
        key: key(id),
        when: WireWhen::In(3_600_000),
        arming: ArmingId::random(),
        payload: Bytes::new(),
        trace: None,
        by: None,
    }
}

fn words(answers: &[keylapse::Result<ArmResult>]) -> Vec<String> {
    answers.iter().map(super::scene::word_of).collect()
}

#[tokio::test]
async fn a_first_sending_that_comes_after_its_repeat_and_a_cancel_is_superseded() {
    let server = Server::start().await;
    let store = Store::at(&server.app_url()).unwrap();
    let at = PartitionNames::new("keylapse", "app.share", 0, 1, false);
    let entry = TopicEntry {
        name: "app.share".into(),
        pattern: "app:share:{id}".into(),
        partitions: 1,
        marker_keys: true,
        attached: false,
    };
    store.register(&entry, std::slice::from_ref(&at)).await.unwrap();
    let (first, repeat) =
        (OpFlags { marker_keys: true, ..OpFlags::default() }, OpFlags { repeat: true, ..OpFlags::default() });
    for only_if_absent in [false, true] {
        let first = OpFlags { only_if_absent, ..first };
        for others in [vec![], vec![timer("b"), timer("c")]] {
            let late = [&[timer("a")][..], &others].concat();
            let armed = store.arm(&at, OpFlags { only_if_absent, ..repeat }, &late[..1]).await.unwrap();
            assert_eq!(words(&armed), ["Armed"]);
            let cancel = Cancel { key: key("a"), id: CancelId::random() };
            let cancelled = store.cancel(&at, &[cancel]).await.unwrap();
            assert!(matches!(cancelled[..], [CancelReply { result: Cancelled::Cancelled, .. }]));
            let answers = words(&store.arm(&at, first, &late).await.unwrap());
            assert_eq!(answers[0], "Superseded", "{first:?} beside {}", others.len());
            assert!(answers[1..].iter().all(|answer| answer == "Armed"), "{answers:?}");
            assert!(store.get_timer(&at, &key("a")).await.unwrap().is_none());
            let set = server.cmd(&["EXISTS", "app:share:a"]).await;
            assert_eq!(set, redis::Value::Int(0), "nor is there a trigger key");
            for NewTimer { key, .. } in others {
                let cancel = Cancel { key, id: CancelId::random() };
                let _ = store.cancel(&at, &[cancel]).await.unwrap();
            }
        }
    }
}

/// How many script calls the server has run.
async fn runs(server: &Server) -> u64 {
    let info: InfoDict = redis::from_redis_value(server.cmd(&["INFO", "commandstats"]).await).unwrap();
    let evalsha: String = info.get("cmdstat_evalsha").unwrap_or_default();
    let calls = evalsha.split(',').find_map(|word| word.strip_prefix("calls=")).unwrap_or("0");
    calls.parse().unwrap()
}

/// The first connection is held up, and the calls are repeated over another; then the first comes to life.
#[tokio::test]
async fn arms_that_went_together_and_were_held_up_arm_nothing_that_has_ended_since() {
    if skipped_on_a_cluster("streams of the application are refused: they lead to one server") {
        return;
    }
    let scene = Scene::start().await;
    let other = Proxy::before(&scene.server).await;
    let port = Arc::new(AtomicU16::new(scene.proxy.port()));
    let (to, limit) = (port.clone(), Duration::from_secs(1));
    let open = move || TcpStream::connect(("127.0.0.1", to.load(Ordering::SeqCst)));
    let caller = scene.caller_of(scene.client().answer_within(limit).unwrap().connect_with(open)).await;
    let before = runs(&scene.server).await;
    scene.proxy.stall(Direction::Requests);
    port.store(other.port(), Ordering::SeqCst);
    // The first goes alone, the next by itself, and as many as are worth a call beside it go together.
    let (first, together) = (["alone", "driven"], ["1", "2", "3", "4", "5", "6", "7", "8"]);
    let mut calls = Vec::new();
    for id in first {
        calls.push(tokio::spawn(caller.arm(id)));
        scene.until_seen(id).await;
    }
    calls.extend(together.map(|id| tokio::spawn(caller.arm(id))));
    for call in calls {
        assert_eq!(call.await.unwrap(), "Armed");
    }
    let sent: Vec<_> = scene.take_seen().into_iter().map(|seen| seen.ids).collect();
    assert_eq!(sent, [vec!["alone"], vec!["driven"], together.to_vec()], "they are on their way");
    assert_eq!(runs(&scene.server).await, before + 3, "of the repeats");
    for id in ["alone", "1", "2"] {
        assert_eq!(caller.cancel(id).await, "Cancelled");
    }
    assert_eq!(caller.arm("2").await, "Armed");
    let standing = (scene.standing("2").await, scene.standing("3").await);
    let counted = runs(&scene.server).await;
    scene.proxy.resume();
    let arrived = async || runs(&scene.server).await == counted + 3;
    eventually(PATIENCE, "what was held up to arrive", arrived).await;
    scene.none_stands(&["alone", "1"]).await;
    assert_eq!((scene.standing("2").await, scene.standing("3").await), standing);
}
