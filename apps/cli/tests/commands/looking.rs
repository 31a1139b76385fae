//! `status`, `topics`, `listeners`, `ls`, `show` and `why`.

use std::time::Duration;

use keylapse_support::eventually;

use crate::commands::scene::{Do, PATIENCE, Scene, plain};

const HOUR: Duration = Duration::from_secs(3600);

/// Something in every state.
async fn busy() -> Scene {
    let scene = Scene::new().await.listening().await;
    scene.arm(b"later", HOUR, Do::Succeed).await;
    scene.arm(b"runs", Duration::ZERO, Do::Hang).await;
    scene.arm(b"failed", Duration::ZERO, Do::Fail).await;
    scene.bury(2).await;
    eventually(PATIENCE, "the attempts", async || {
        let states = |state| scene.lines(&["ls", "order.unpaid", "--state", state]).len();
        states("running") == 1 && states("waiting") == 2
    })
    .await;
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn each_state_is_listed_by_time() {
    let scene = busy().await;
    let keys = |state: &str| -> Vec<String> {
        let lines = scene.lines(&["ls", "order.unpaid", "--state", state]);
        lines.iter().map(|line| line["key"].as_str().expect("a key").to_owned()).collect()
    };
    let waiting = keys("waiting");
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    assert!(
        waiting.contains(&"order:unpaid:later".to_owned())
            && waiting.contains(&"order:unpaid:failed".to_owned())
    );
    assert_eq!(keys("running"), ["order:unpaid:runs"]);
    let mut dead = keys("dead");
    dead.sort(); // they died as they came to run
    assert_eq!(dead, ["order:unpaid:dead-0", "order:unpaid:dead-1"]);
    assert_eq!(keys("quarantined"), [""; 0]);
    assert_eq!(keys("tracked"), [""; 0]);
    let dead = scene.run(&["ls", "order.unpaid", "--state", "dead"]);
    let mut lines: Vec<_> = dead.out.lines().collect();
    lines[1..].sort_unstable();
    // How wide a column is depends on how long the spans in it are.
    let narrow = regex::Regex::new(" {2,}").expect("a pattern");
    insta::assert_snapshot!("ls_dead", narrow.replace_all(&plain(&lines.join("\n")), "  "));
    assert_eq!((dead.code, dead.err.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_counts_what_there_is_and_names_alarms() {
    let mut scene = busy().await;
    assert_eq!((scene.status("timers"), scene.status("dead"), scene.status("overdue")), (3, 2, 0));
    assert_eq!((scene.status("listeners"), scene.status("due_in_1h")), (1, 3));
    let topics = scene.run(&["topics"]);
    insta::assert_snapshot!("topics", topics.out);

    scene.stop_listening().await;
    let status = scene.run(&["status"]);
    assert!(status.out.contains("! order.unpaid: no listener serves it"), "{}", status.out);
    assert!(status.out.contains("unserved") && status.out.contains("0 listeners"), "{}", status.out);
    assert_eq!(scene.run(&["listeners"]).code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_was_what_comes_and_why_not_now() {
    let mut scene = busy().await;
    let why = |key: &str| {
        let ran = scene.run(&["why", &format!("order:unpaid:{key}")]);
        (ran.code, plain(&ran.out))
    };
    let (code, failed) = why("failed");
    assert_eq!(code, 0);
    for part in
        ["attempt 1 failed: error: timeout while calling the shop", "next:  attempt 2", "it is not due yet"]
    {
        assert!(failed.contains(part), "{part} in {failed}");
    }
    assert!(why("runs").1.contains("attempt 1 is running"), "{}", why("runs").1);
    let (code, dead) = why("dead-0");
    assert!(code == 0 && dead.contains("died: permanent, after 1 attempt\n"), "{dead}");
    let (code, never) = why("never");
    assert!(code == 1 && never.contains("nothing is armed under this key"), "{never}");
    assert_eq!(scene.run(&["why", "no:such:pattern:of:key"]).code, 1);

    scene.run(&["pause", "order.unpaid", "--reason", "the shop moves"]);
    let paused = scene.run(&["why", "order:unpaid:later"]).out;
    assert!(paused.contains("not now:  the topic is paused: the shop moves"), "{paused}");
    scene.run(&["resume", "order.unpaid"]);
    scene.stop_listening().await;
    let unserved = scene.run(&["why", "order:unpaid:later"]).out;
    assert!(unserved.contains("not now:  no listener serves the topic"), "{unserved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_that_whoever_ran_an_attempt_has_left_it() {
    let scene = Scene::new().await;
    scene.server.cmd(&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"]).await;
    let url = format!("redis://worker:secret@127.0.0.1:{}/", scene.server.port());
    let scene = scene.listening_at(url).await;
    scene.arm(b"runs", Duration::ZERO, Do::Hang).await;
    eventually(PATIENCE, "the attempt", async || {
        !scene.lines(&["ls", "order.unpaid", "--state", "running"]).is_empty()
    })
    .await;
    // Whoever is cut off renews nothing; and as if the rest of its lease had passed.
    scene.server.cmd(&["ACL", "SETUSER", "worker", "off"]).await;
    scene.server.cmd(&["CLIENT", "KILL", "USER", "worker"]).await;
    scene.server.cmd(&["ZADD", "keylapse:{order.unpaid/0}:due", "XX", "1", "order:unpaid:runs"]).await;
    let why = plain(&scene.run(&["why", "order:unpaid:runs"]).out);
    for part in ["the lease of attempt 1 ended without a result", "next:  attempt 1 again, due for "] {
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_shown_only_when_asked_for() {
    let scene = busy().await;
    for command in [&["show", "order:unpaid:dead-0"][..], &["ls", "order.unpaid", "--state", "dead"]] {
        let hidden = scene.run(&[command, &["--json"]].concat());
        assert!(hidden.code == 0 && !hidden.out.contains("Die"), "{}", hidden.out);
        let shown = scene.run(&[command, &["--payloads"]].concat());
        assert!(shown.out.contains("\"Die\""), "{}", shown.out);
    }
    insta::assert_snapshot!("show", plain(&scene.run(&["show", "order:unpaid:dead-0"]).out));
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_pick_out_what_they_say() {
    let scene = busy().await;
    let found =
        |filter: &str, state: &str| scene.lines(&["ls", "order.unpaid", filter, "--state", state]).len();
    assert_eq!(found("key:order:unpaid:dead-*", "dead"), 2);
    assert_eq!(found("key:order:unpaid:dead-1", "dead"), 1);
    assert_eq!(found("key:dead-1", "dead"), 0, "a glob is for the whole key");
    assert_eq!(found("reason:permanent", "dead"), 2);
    assert_eq!(found("reason:exhausted,too_old", "dead"), 0);
    assert_eq!(found("error:~CLOSED", "dead"), 2);
    assert_eq!(found("error:~timeout", "waiting"), 1);
    assert_eq!(found("attempt:>1", "waiting"), 1);
    assert_eq!(found("attempt:<=1", "waiting"), 1);
    assert_eq!((found("older:1h", "dead"), found("newer:1h", "dead")), (0, 2));
    for bad in ["nonsense", "attempt:many", "older:5", "id:7", "key:", "foo:bar", "key:\\q"] {
        let ran = scene.run(&["ls", "order.unpaid", bad]);
        assert!(ran.code == 2 && ran.err.starts_with("keylapse: "), "{bad}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_over_several_partitions_show_each_entry_once_and_by_time() {
    let scene = Scene::partitioned(3).await;
    let arms = (0..2500_u32).map(|n| {
        let key = format!("{n}");
        keylapse::NewArm::new(key, HOUR + Duration::from_millis(u64::from(n * 7919 % 2500)), Do::Succeed)
    });
    let armed = scene.schedule.arm_many(&scene.orders, arms).await.expect("armings");
    assert!(armed.iter().all(Result::is_ok));
    let (mut seen, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["--json", "ls", "order.unpaid", "--limit", "400"];
        args.extend(after.as_deref().map_or(vec![], |after| vec!["--after", after]));
        let ran = scene.run(&args);
        let lines: Vec<serde_json::Value> =
            ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(lines.len() <= 400);
        seen.extend(lines.iter().map(|line| (line["at_ms"].as_u64(), line["key"].to_string())));
        let Some((_, place)) = ran.err.split_once("--after '") else { break };
        after = Some(place.trim_end().trim_end_matches('\'').to_owned());
    }
    assert!(seen.is_sorted_by_key(|(at, _)| *at), "by time, over all partitions");
    let keys: std::collections::BTreeSet<_> = seen.iter().map(|(_, key)| key).collect();
    assert_eq!((seen.len(), keys.len()), (2500, 2500));
    for bad in ["0", "-1", "x"] {
        assert_eq!(scene.run(&["ls", "order.unpaid", "--limit", bad]).code, 2, "{bad}");
        assert_eq!(scene.run(&["status", "--limit", bad]).code, 2, "{bad}");
    }
    let status = scene.lines(&["status", "--limit", "1000000000"]);
    assert_eq!(status.len(), 2, "the topic, and that nobody serves it: {status:?}");
    let all = scene.lines(&["ls", "order.unpaid", "--limit", "1000000000"]);
    assert_eq!(all.len(), 2500);
}

/// What is hinted at is a command line: somebody copies it.
#[tokio::test(flavor = "multi_thread")]
async fn the_hint_where_the_rest_begins_can_be_given_to_a_shell() {
    let scene = Scene::new().await;
    let keys: [&[u8]; 3] = [b"it's $HOME `id` \\ \"x\" !", b"a'; echo 'gone", b"\n'\xff'"];
    for (n, key) in (0_u64..).zip(keys) {
        scene.arm(key, HOUR + Duration::from_secs(n), Do::Succeed).await;
    }
    let dry = scene.run(&["cancel", "--in", "order.unpaid", "--dry-run", "--limit", "1"]);
    assert_eq!(dry.err, "", "a dry run ends nowhere: {dry:?}");
    let (mut seen, mut hint) = (String::new(), String::new());
    loop {
        let line = format!("{} ls order.unpaid --json --limit 1 {hint}", env!("CARGO_BIN_EXE_keylapse"));
        let mut shell = std::process::Command::new("sh");
        let ended = shell.args(["-c", &line]).env("KEYLAPSE_URL", scene.server.plain_url()).output();
        let ended = ended.expect("a shell");
        seen.push_str(std::str::from_utf8(&ended.stdout).expect("ASCII"));
        let said = String::from_utf8(ended.stderr).expect("ASCII");
        let Some(more) = said.trim_end().strip_prefix("there may be more: ") else {
            assert_eq!(said, "");
            break;
        };
        hint = more.to_owned();
    }
    let seen: Vec<serde_json::Value> =
        seen.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let seen: Vec<_> = seen.iter().map(|line| line["key"].as_str().expect("a key")).collect();
    let expected = keys.map(|key| keylapse_console::text::escape(&[b"order:unpaid:", key].concat()));
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_found_it_is_said_what_to_do_next() {
    let scene = Scene::new().await;
    for (args, code, says) in [
        (&["topics"][..], 1, "no topic is registered in namespace keylapse: "),
        (&["show", "order:unpaid:1"], 1, "no topic is registered in namespace keylapse: "),
        (&["ls", "order.unpaid", "-n", "other"], 2, "none is registered in namespace other"),
    ] {
        let ran = scene.run(args);
        assert!(ran.code == code && ran.out.is_empty() && ran.err.contains(says), "{args:?}: {ran:?}");
    }
    let status = scene.run(&["status", "-n", "other"]);
    assert!(status.code == 0 && status.out.contains("in namespace other: "), "{status:?}");

    scene.arm(b"it's", HOUR, Do::Succeed).await;
    for (args, code, says) in [
        (
            &["ls", "order.unpiad"][..],
            2,
            "no topic is called order.unpiad: the nearest of 1 topic: order.unpaid",
        ),
        (
            &["show", "order:paid:1"],
            1,
            "no registered topic has a pattern that matches order:paid:1: `keylapse topics`",
        ),
        (
            &["why", "order:paid:1"],
            1,
            "no registered topic has a pattern that matches order:paid:1: `keylapse topics`",
        ),
        (
            &["cancel", "order:paid:1"],
            1,
            "no registered topic has a pattern that matches order:paid:1: `keylapse topics`",
        ),
        (
            &["show", "order:unpaid:o'1"],
            1,
            r"nothing is kept of order:unpaid:o'1: `keylapse why 'order:unpaid:o'\''1'`",
        ),
    ] {
        let ran = scene.run(args);
        let first = format!("keylapse: {says}");
        assert!(ran.code == code && ran.out.is_empty() && ran.err.starts_with(&first), "{args:?}: {ran:?}");
    }
}
