//! `export` and `import`.

use std::time::Duration;

use keylapse_console::{Console, text};
use keylapse_support::eventually;

use crate::commands::scene::{Do, PATIENCE, Scene};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_comes_back_as_it_was_and_once() {
    let mut scene = Scene::new().await.listening().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    // At another millisecond: an export carries no order within one.
    scene.arm(b"odd\n\xff\\", HOUR + Duration::from_secs(1), Do::Succeed).await;
    scene.arm(b"failed", Duration::ZERO, Do::Fail).await;
    scene.bury(3).await;
    eventually(PATIENCE, "the retry", async || scene.lines(&["ls", "order.unpaid", "attempt:2"]).len() == 1)
        .await;
    scene.stop_listening().await;
    let (timers, letters) =
        (scene.run(&["export", "order.unpaid"]), scene.run(&["export", "order.unpaid", "--dead"]));
    assert_eq!((timers.out.lines().count(), letters.out.lines().count()), (3, 3), "{timers:?} {letters:?}");
    let seen = |scene: &Scene, state: &str| {
        scene.run(&["--json", "ls", "order.unpaid", "--payloads", "--state", state]).out
    };
    let before = (seen(&scene, "waiting"), seen(&scene, "dead"));

    assert_eq!(scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid", "--force"]).code, 0);
    let lines = [timers.out.as_bytes(), letters.out.as_bytes()].concat();
    let refused = scene.run_with(&["import"], &lines);
    assert!(refused.code == 2 && refused.err.contains("no topic is called order.unpaid"), "{refused:?}");
    // Whoever uses the topic registers it.
    scene.schedule = keylapse::Schedule::connect(&scene.server.plain_url()).await.expect("a schedule");
    scene.schedule.resume(&scene.orders).await.expect("the topic");

    let first = scene.run_with(&["import"], &lines);
    assert!(first.code == 0 && first.out.ends_with("imported=6 skipped=0\n"), "{first:?}");
    assert_eq!((seen(&scene, "waiting"), seen(&scene, "dead")), before);
    let second = scene.run_with(&["import"], &lines);
    assert!(second.code == 0 && second.out.ends_with("imported=0 skipped=6\n"), "{second:?}");
    assert_eq!((seen(&scene, "waiting"), seen(&scene, "dead")), before);
    assert_eq!(scene.run(&["verify"]).code, 0);

    // What was withdrawn since stays so.
    scene.run(&["cancel", "order:unpaid:later"]);
    let third = scene.run_with(&["import"], &lines);
    assert!(third.out.contains("was cancelled or replaced lately: 1"), "{third:?}");
    let fourth = scene.schedule.look_up(&scene.orders, "later").await.expect("a look");
    assert!(fourth.is_none());
}

/// Bytes that a parser would write otherwise, or not at all.
const PAYLOADS: [&[u8]; 9] = [
    b"1234567890123456789012345",
    br#"{"amount":100000000000000000.01}"#,
    b"1.10",
    b"1e400",
    br#"{"b":1,"a":2,"b":3}"#,
    b" {\"a\" :\t1}\n",
    br#""\ud800""#,
    b"\xff\0\r\n\\x41\\",
    b"",
];

#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_armed_shown_exported_and_imported_byte_for_byte() {
    let mut scene = Scene::new().await;
    scene.arm(b"first", HOUR, Do::Succeed).await;
    let folder = tempfile::tempdir().expect("a folder");
    for (number, payload) in PAYLOADS.iter().enumerate() {
        let file = folder.path().join("payload");
        std::fs::write(&file, payload).expect("a file");
        let way = match std::str::from_utf8(payload) {
            Ok(text) if !text.contains('\0') => format!("--payload={text}"),
            _ => format!("--payload-file={}", file.display()),
        };
        let armed = scene.run(&["arm", &key(number), "--when", "2h", &way]);
        assert_eq!(armed.code, 0, "{armed:?}");
    }
    all_are_there(&scene).await;
    let lines = scene.run(&["export", "order.unpaid"]).out;
    assert_eq!(scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid", "--force"]).code, 0);
    scene.schedule = keylapse::Schedule::connect(&scene.server.plain_url()).await.expect("a schedule");
    scene.schedule.resume(&scene.orders).await.expect("the topic");
    let imported = scene.run_with(&["import"], lines.as_bytes());
    assert!(imported.out.ends_with("imported=10 skipped=0\n"), "{imported:?}");
    all_are_there(&scene).await;
}

fn key(number: usize) -> String {
    format!("order:unpaid:{number}")
}

/// In Redis, and as the program shows them.
async fn all_are_there(scene: &Scene) {
    let console = Console::connect(&*scene.server.plain_url()).await.expect("the server is there");
    let topic = console.topic("order.unpaid").await.expect("the topic");
    let lines = scene.lines(&["ls", "order.unpaid", "--payloads"]);
    for (number, payload) in PAYLOADS.iter().enumerate() {
        let timer = topic.timer(key(number).as_bytes(), Some(1000)).await.expect("a look");
        assert_eq!(
            timer.expect("a timer").payload.expect("its payload"),
            *payload,
            "{}",
            payload.escape_ascii()
        );
        let shown = text::escape(payload);
        let ran = scene.run(&["show", &key(number), "--payloads"]);
        assert!(ran.out.lines().any(|line| line.trim() == shown.trim()), "{shown}: {}", ran.out);
        assert!(lines.iter().any(|line| line["payload"] == *shown), "{shown}: {lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_timers_run() {
    let scene = Scene::new().await.listening().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    let line = scene.run(&["export", "order.unpaid"]).out;
    scene.run(&["cancel", "order:unpaid:later"]);
    let mut line: serde_json::Value = serde_json::from_str(&line).expect("a line");
    for (field, value) in [("id", "00000000000000ff".into()), ("at_ms", 1.into()), ("deadline_ms", 1.into())]
    {
        line[field] = value;
    }
    let imported = scene.run_with(&["import"], line.to_string().as_bytes());
    assert!(imported.out.ends_with("imported=1 skipped=0\n"), "{imported:?}");
    eventually(PATIENCE, "the attempt", async || scene.status("timers") == 0 && scene.status("handled") == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_cannot_be_are_refused_by_their_number() {
    let scene = Scene::new().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    let good = scene.run(&["export", "order.unpaid"]).out;
    let with = |field: &str, value: serde_json::Value| {
        let mut line: serde_json::Value = serde_json::from_str(&good).expect("a line");
        line[field] = value;
        line.to_string()
    };
    for bad in [
        "nonsense".to_owned(),
        "{}".to_owned(),
        "[1]".to_owned(),
        with("v", 2.into()),
        with("type", "job".into()),
        with("id", "7".into()),
        with("at_ms", (1_u64 << 43).into()),
        with("deadline_ms", (-1).into()),
        with("key", "other:7".into()),
        with("key", "order:unpaid:\\q".into()),
        with("topic", "other".into()),
        with("more", 1.into()),
        with("type", "dead_letter".into()),
    ] {
        let ran = scene.run_with(&["import"], format!("{good}{bad}\n").as_bytes());
        assert!(ran.code == 2 && ran.err.starts_with("keylapse: "), "{bad}: {ran:?}");
    }
    assert_eq!(scene.run_with(&["import"], b"").code, 1);
    assert_eq!(scene.status("timers"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_an_end_is_passed_over_and_named() {
    let scene = Scene::new().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    let good = scene.run(&["export", "order.unpaid"]).out.into_bytes();
    scene.run(&["destroy", "order.unpaid", "--confirm", "order.unpaid", "--force"]);
    let schedule = keylapse::Schedule::connect(&scene.server.plain_url()).await.expect("a schedule");
    schedule.resume(&scene.orders).await.expect("the topic");
    let long = vec![b'x'; (40 << 20) + 1];
    let ran = scene.run_with(&["import"], &[&b"\n"[..], &long, b"\n", &good].concat());
    assert_eq!((ran.code, ran.err.as_str()), (1, "line 2 is longer than 40 MiB: it is skipped\n"));
    assert_eq!(ran.out, "imported: 1\ntoo long: 1\nimported=1 skipped=1\n");
    let broken = scene.run_with(&["import"], b"\n\xff\n");
    assert!(broken.code == 2 && broken.err.starts_with("keylapse: line 2: "), "{broken:?}");
}
