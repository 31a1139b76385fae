//! `check` and `verify`.

use std::time::Duration;

use keylapse_support::eventually;

use crate::commands::scene::{Do, PATIENCE, Scene};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_backlog_from_what_is_due_in_the_future() {
    let mut scene = Scene::new().await.listening().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    scene.bury(2).await;
    let check = |args: &[&str]| scene.run(&[&["check"], args].concat());
    let fine =
        check(&["--max-overdue", "5s", "--max-dead", "2", "--min-listeners", "1", "--max-quarantined", "0"]);
    assert_eq!((fine.code, fine.out.as_str()), (0, "topics=1 alarms=0 breaches=0\n"), "{fine:?}");
    let dead = check(&["--max-dead", "1"]);
    assert_eq!(
        (dead.code, dead.out.as_str()),
        (1, "order.unpaid: 2 dead letters\ntopics=1 alarms=0 breaches=1\n")
    );
    assert_eq!(check(&[]).code, 0, "alarms are looked for in any case");
    assert_eq!(check(&["--allow", "nonsense"]).code, 2);
    assert_eq!(check(&["--max-overdue", "5"]).code, 2);
    assert_eq!(check(&["order.paid", "--max-dead", "1"]).code, 2);

    scene.stop_listening().await;
    scene.arm(b"now", Duration::ZERO, Do::Succeed).await;
    eventually(PATIENCE, "an overdue timer", async || {
        let overdue = scene.run(&["check", "--max-overdue", "10ms", "--min-listeners", "1"]);
        overdue.code == 1
            && overdue.out.contains("1 overdue timer, the oldest due for ")
            && overdue.out.contains("served by 0 listeners")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_namespace_does_not_look_healthy() {
    let scene = Scene::new().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    for command in [&["check", "--max-dead", "0", "--allow", "unserved"][..], &["verify"]] {
        assert_eq!(scene.run(command).code, 0, "{command:?}");
        let elsewhere = scene.run(&[command, &["-n", "keylaps"]].concat());
        assert!(
            elsewhere.code == 1 && elsewhere.err.contains("no topic is registered in namespace keylaps:"),
            "{elsewhere:?}"
        );
        assert!(elsewhere.out.starts_with("topics=0 "), "{elsewhere:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_agree_is_found_and_left_as_it_is() {
    let scene = Scene::partitioned(2).await;
    for n in 0..1200 {
        scene.arm(format!("{n}").as_bytes(), HOUR, Do::Succeed).await;
    }
    let sound = scene.run(&["verify", "order.unpaid"]);
    assert_eq!((sound.code, sound.out.as_str()), (0, "topics=1 looked_at=2400 faults=0\n"), "{sound:?}");
    let names = |what: &str| format!("keylapse:{{order.unpaid/0}}:{what}");
    let found = scene.server.cmd(&["ZRANGE", &names("due"), "0", "2"]).await;
    let keys: Vec<String> = redis::from_redis_value(found).expect("keys");
    scene.server.cmd(&["ZREM", &names("due"), &keys[0]]).await;
    scene.server.cmd(&["HDEL", &names("timers"), &keys[1]]).await;
    scene.server.cmd(&["ZADD", &names("dead"), "7", "0123456789abcdefx"]).await;
    scene.server.cmd(&["HSET", &names("queued"), "order:unpaid:z", "x"]).await;
    let broken = scene.run(&["verify"]);
    assert_eq!(broken.code, 1);
    for fault in [
        "record_without_index: 1",
        "index_without_record: 1",
        "dead_letter_without_bytes: 1",
        "queued_without_timer: 1",
    ] {
        assert!(broken.out.contains(fault), "{fault} in {}", broken.out);
    }
    assert_eq!(scene.run(&["verify"]).out, broken.out, "nothing was put right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_at_work_is_sound() {
    let scene = Scene::new().await.listening().await;
    let arms =
        (0..3000).map(|n| keylapse::NewArm::new(format!("{n}"), Duration::from_millis(n), Do::Succeed));
    let armed = scene.schedule.arm_many(&scene.orders, arms).await.expect("armings");
    assert!(armed.iter().all(Result::is_ok));
    while scene.status("timers") > 0 {
        let ran = scene.run(&["verify"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}
