//! `tail`, `journal` and `doctor`.

use std::process::Command;
use std::time::Duration;

use keylapse_support::{Fsync, Program, Server, eventually};

use crate::commands::scene::{Do, PATIENCE, Scene, plain, run_at};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn the_tail_tells_starts_and_ends_while_it_looks_and_no_longer() {
    let scene = Scene::new().await.listening().await;
    scene.arm(b"first", HOUR, Do::Succeed).await;
    let url = scene.server.plain_url();
    let tail = std::thread::spawn(move || {
        run_at(&url, &["tail", "order.unpaid", "--limit", "7", "--for", "60s"], b"")
    });
    let looked_on = ["HEXISTS", "keylapse:{order.unpaid/0}:meta", "watched_until"];
    eventually(PATIENCE, "somebody who looks on", async || {
        scene.server.cmd(&looked_on).await == redis::Value::Int(1)
    })
    .await;
    scene.arm(b"good", Duration::ZERO, Do::Succeed).await;
    scene.arm(b"dead", Duration::ZERO, Do::Die).await;
    scene.arm(b"bad", Duration::ZERO, Do::Fail).await;
    scene.run(&["cancel", "order:unpaid:first"]);
    let told = tail.join().expect("the tail");
    assert_eq!(told.code, 0, "{told:?}");
    let told = plain(&told.out);
    for part in [
        "order:unpaid:good  attempt 1 claimed",
        "order:unpaid:good  done at attempt 1",
        "order:unpaid:dead  dead at attempt 1: permanent",
        "order:unpaid:bad  failed; attempt 2 SPAN",
        "order:unpaid:first  cancelled",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let quiet = scene.run(&["tail", "--for", "10ms"]);
    assert!(quiet.code == 1 && quiet.out.is_empty(), "{quiet:?}");
    assert_eq!(scene.run(&["tail", "nonsense"]).code, 2);
}

/// A tail that runs, and the lines that it writes.
struct Tail(Program);

impl Tail {
    fn of(url: &str) -> Self {
        let mut tail = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        tail.env("KEYLAPSE_URL", url).args(["--json", "tail", "order.unpaid"]);
        Self(Program::talking(&mut tail).expect("the program"))
    }

    /// Lines of which this is so.
    fn count(&self, is_so: impl Fn(&serde_json::Value) -> bool) -> usize {
        self.0.lines().iter().filter(|line| is_so(&serde_json::from_str(line).expect("JSON"))).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_goes_on_after_a_restart_and_with_other_partitions_and_says_what_may_be_missing() {
    let server = Server::builder().aof(Fsync::Always).start().await;
    let schedule = keylapse::Schedule::connect(&server.plain_url()).await.expect("a schedule");
    let mut scene = Scene::with(server, schedule);
    scene.arm(b"first", HOUR, Do::Succeed).await;
    let tail = Tail::of(&scene.server.plain_url());
    let looked_on = ["HEXISTS", "keylapse:{order.unpaid/0}:meta", "watched_until"];
    eventually(PATIENCE, "somebody who looks on", async || {
        scene.server.cmd(&looked_on).await == redis::Value::Int(1)
    })
    .await;
    let missed = || tail.count(|line| line["missed"] == "disconnected");
    scene.server.shutdown().await;
    eventually(PATIENCE, "the lost line", async || missed() == 1).await;
    scene.server.restart().await;
    // Keys of all partitions.
    let withdraw = || {
        for n in 0..6 {
            let key = format!("order:unpaid:{n}");
            assert_eq!(scene.run(&["arm", &key, "--when", "1h", "--payload", "\"Succeed\""]).code, 0);
            assert_eq!(scene.run(&["cancel", &key]).code, 0);
        }
    };
    let heard = |partition: u64| tail.count(|line| line["partition"] == partition);
    eventually(PATIENCE, "what follows", async || {
        withdraw();
        heard(0) > 0
    })
    .await;
    assert_eq!((missed(), heard(1)), (1, 0));
    assert_eq!(scene.run(&["partitions", "order.unpaid", "--to", "2"]).code, 0);
    eventually(PATIENCE, "the new partition", async || {
        withdraw();
        heard(1) > 0
    })
    .await;
    assert_eq!(missed(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_tells_what_has_ended_and_why_reads_it() {
    let mut scene = Scene::new().await;
    let none = scene.run(&["journal", "order.unpaid"]);
    assert_eq!(none.code, 2, "{none:?}");
    scene.orders = scene.orders.clone().journal(100, HOUR);
    let scene = scene.listening().await;
    for (key, what) in [("good", Do::Succeed), ("dead", Do::Die)] {
        scene.arm(key.as_bytes(), Duration::ZERO, what).await;
    }
    scene.arm(b"withdrawn", HOUR, Do::Succeed).await;
    scene.run(&["cancel", "order:unpaid:withdrawn"]);
    eventually(PATIENCE, "three ends", async || scene.lines(&["journal", "order.unpaid"]).len() == 3).await;
    let table = scene.run(&["journal", "order.unpaid"]).out;
    for part in ["order:unpaid:good", "done", "order:unpaid:withdrawn", "cancelled", "dead: permanent"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    assert_eq!(scene.lines(&["journal", "order.unpaid", "--limit", "2"]).len(), 2);
    assert_eq!(scene.lines(&["journal", "order.unpaid", "--limit", "1000000000"]).len(), 3);
    for bad in ["0", "-1", "x"] {
        assert_eq!(scene.run(&["journal", "order.unpaid", "--limit", bad]).code, 2, "{bad}");
    }
    let why = scene.run(&["why", "order:unpaid:good"]);
    assert!(
        why.out.contains("ended: done, at attempt 1") && why.out.contains("nothing: it has ended"),
        "{why:?}"
    );
}

/// As somebody would who has just installed a server.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctors_advice_is_followed_until_nothing_is_wrong() {
    let server = Server::builder().config("notify-keyspace-events", "").start().await;
    let doctor = |args: &[&str]| run_at(&server.plain_url(), &[&["doctor"], args].concat(), b"");
    let ill = doctor(&[]);
    assert_eq!(ill.code, 1, "{ill:?}");
    let lines: Vec<_> = ill.out.lines().map(str::trim).collect();
    let advice: Vec<_> =
        lines.iter().filter_map(|line| line.strip_prefix("> redis-cli -h 127.0.0.1 -p ")).collect();
    assert!(!advice.is_empty(), "{ill:?}");
    for line in advice {
        let (port, command) = line.split_once(' ').expect("a port");
        assert_eq!(port, server.port().to_string());
        server.cmd(&command.split(' ').collect::<Vec<_>>()).await;
    }
    let well = doctor(&["--measure", "2s"]);
    assert!(
        well.code == 0 && well.out.lines().last().is_some_and(|last| last.starts_with("errors=0 ")),
        "{well:?}"
    );
    assert!(!well.out.contains("heartbeat_ms=-") && !well.out.contains("plain_received=-"), "{well:?}");
    let json = run_at(&server.plain_url(), &["--json", "doctor"], b"");
    let last: serde_json::Value =
        serde_json::from_str(json.out.lines().last().expect("a line")).expect("JSON");
    assert_eq!((last["type"].as_str(), last["errors"].as_u64()), (Some("diagnosis"), Some(0)));
    assert_eq!(run_at("redis://127.0.0.1:1/", &["doctor"], b"").code, 3);
}
