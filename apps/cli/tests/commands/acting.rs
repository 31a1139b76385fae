//! `arm`, `cancel`, `reschedule`, `run-now`, `pause`, `partitions`, `destroy`.

use std::time::Duration;

use keylapse_support::eventually;

use crate::commands::scene::{Do, PATIENCE, Scene, run_at};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn one_timer_is_armed_moved_and_withdrawn() {
    let scene = Scene::new().await;
    scene.arm(b"first", HOUR, Do::Succeed).await;
    let arm = |more: &[&str]| {
        scene.run(&[&["arm", "order:unpaid:7", "--when", "2h", "--payload", "\"Succeed\""], more].concat())
    };
    let armed = arm(&[]);
    assert!(armed.code == 0 && armed.out.starts_with("order:unpaid:7: armed, due at "), "{armed:?}");
    let left = arm(&["--only-if-absent"]);
    assert!(left.code == 1 && left.out.contains("unchanged"), "{left:?}");
    assert!(arm(&[]).out.contains("replaced"));

    let at = "2099-01-01T00:00:00Z";
    let moved = scene.run(&["reschedule", "order:unpaid:7", "--to", at]);
    assert!(
        moved.code == 2 && moved.err.contains("10 years") || moved.out.contains("due at 2099-01-01"),
        "{moved:?}"
    );
    let moved = scene.run(&["reschedule", "order:unpaid:7", "--to", "30m"]);
    assert!(moved.code == 0 && moved.out.contains("due at "), "{moved:?}");
    assert_eq!(scene.run(&["reschedule", "order:unpaid:8", "--to", "30m"]).code, 1);
    assert_eq!(scene.run(&["reschedule", "order:unpaid:7", "--to", "tomorrow"]).code, 2);

    let cancelled = scene.run(&["cancel", "order:unpaid:7"]);
    assert_eq!((cancelled.code, cancelled.out.as_str()), (0, "order:unpaid:7: cancelled: it will not run\n"));
    assert_eq!(scene.run(&["cancel", "order:unpaid:7"]).code, 1);
    assert_eq!(scene.run(&["cancel", "other:7"]).code, 1);
    assert_eq!(scene.run(&["cancel"]).code, 2);
    assert_eq!(scene.status("timers"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_run_now_runs_now() {
    let scene = Scene::new().await.listening().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    assert_eq!(scene.run(&["run-now", "order:unpaid:later"]).code, 0);
    eventually(PATIENCE, "the attempt", async || scene.status("timers") == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_paused_with_a_reason_and_resumed() {
    let scene = Scene::new().await.listening().await;
    let paused = scene.run(&["pause", "order.unpaid", "--reason", "the shop moves"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    scene.arm(b"now", Duration::ZERO, Do::Succeed).await;
    eventually(PATIENCE, "an overdue timer", async || scene.status("overdue") == 1).await;
    let status = scene.run(&["status"]).out;
    assert!(status.contains("paused: the shop moves"), "{status}");
    assert_eq!(scene.run(&["resume", "order.unpaid"]).code, 0);
    eventually(PATIENCE, "the attempt", async || scene.status("timers") == 0).await;
    assert_eq!(scene.run(&["pause", "order.unpaid"]).code, 2, "a reason is wanted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_gets_other_partitions_and_its_end() {
    let scene = Scene::new().await;
    for n in 0..20 {
        scene.arm(format!("{n}").as_bytes(), HOUR, Do::Succeed).await;
    }
    let grown = scene.run(&["partitions", "order.unpaid", "--to", "4"]);
    assert!(grown.code == 0 && grown.out.contains("4 partitions instead of 1"), "{grown:?}");
    assert_eq!((scene.status("timers"), scene.status("partitions")), (20, 4));

    let refused = scene.run(&["destroy", "order.unpaid"]);
    assert!(refused.code == 2 && refused.err.contains("--confirm order.unpaid"), "{refused:?}");
    let in_use = scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid"]);
    let says = "keylapse: order.unpaid holds 20 timers: let timers end or cancel them, or use --force\n";
    assert_eq!((in_use.code, in_use.err.as_str()), (1, says));
    assert_eq!(scene.run(&["destroy", "order.unpaid", "--confirm", "order", "--force"]).code, 1);
    assert_eq!(scene.status("timers"), 20);
    let gone = scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid", "--force"]);
    assert!(gone.code == 0 && gone.out.contains("20 timers"), "{gone:?}");
    assert_eq!(scene.run(&["topics"]).code, 1);
    assert_eq!(scene.server.cmd(&["DBSIZE"]).await, redis::Value::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_a_thing_is_said_as_one() {
    let mut scene = Scene::new().await.listening().await;
    scene.bury(1).await;
    let dry = scene.run(&["dead", "drop", "order.unpaid", "reason:permanent", "--dry-run"]);
    let says = "1 dead letter of order.unpaid matching reason:permanent would be dropped";
    assert!(dry.out.contains(says), "{dry:?}");
    assert!(scene.run(&["status"]).out.ends_with("\n1 listener\n"));
    scene.stop_listening().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    let gone = scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid", "--force"]);
    assert!(gone.out.contains("deleted 1 timer, 1 dead letter and 1 marker key"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_use_is_said_in_the_programs_own_words() {
    let mut scene = Scene::new().await.listening().await;
    scene.arm(b"runs", Duration::ZERO, Do::Hang).await;
    eventually(PATIENCE, "the attempt", async || {
        scene.lines(&["ls", "order.unpaid", "--state", "running"]).len() == 1
    })
    .await;
    let destroyed = scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid"]);
    let served = "keylapse: order.unpaid is served by a listener on ";
    assert!(destroyed.code == 1 && destroyed.err.starts_with(served), "{destroyed:?}");
    assert!(destroyed.err.contains("or use --force") && !destroyed.err.contains("forced()"), "{destroyed:?}");
    let moved = scene.run(&["partitions", "order.unpaid", "--to", "2", "--wait", "50ms"]);
    let still = "keylapse: attempts of order.unpaid still run after 50ms: ";
    assert!(moved.code == 1 && moved.err.starts_with(still), "{moved:?}");
    assert!(moved.err.contains("--wait") && !moved.err.contains("wait()"), "{moved:?}");
    let detached = scene.run(&["detach", "order.unpaid"]);
    assert!(detached.code == 2 && detached.err.contains("`keylapse destroy order.unpaid`"), "{detached:?}");
    scene.stop_listening().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_let_in_is_told_of_the_options() {
    let scene = Scene::new().await;
    let refused = run_at(&scene.server.url_for("keylapse", "wrong"), &["status"], b"");
    let last = refused.err.lines().last().unwrap_or_default();
    assert!(refused.code == 3 && last.starts_with("hint: --user and --password-file"), "{refused:?}");
    let never = scene.run(&["--timeout", "0", "status"]);
    assert!(never.code == 2 && !never.err.contains("answer_within"), "{never:?}");
}
