//! Each command beside a million timers, a million dead letters and a million keys of others.

use std::time::{Duration, Instant};

use keylapse::{NewArm, Schedule};
use keylapse_console::{Console, Export};
use keylapse_support::Server;

use crate::commands::scene::{Do, Ran, Scene};

const TIMERS: u32 = 1_000_000;
const LETTERS: u32 = 1_000_000;
const FOREIGN: &str = "1000000";
const REPLAYED: u64 = 10_000;
/// What takes the server longer than this stands in its slow log.
const SLOW_US: &str = "5000";

/// Prints how long each command took, and what the server found slow.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes minutes and two gigabytes: make test-more SUITE=operate-scale"]
async fn no_command_is_slow_however_much_there_is() {
    let scene = crowded().await;
    let slow = ["CONFIG", "SET", "slowlog-log-slower-than", SLOW_US];
    scene.server.cmd(&slow).await;
    for command in [
        &["status"][..],
        &["topics"],
        &["listeners"],
        &["ls", "order.unpaid"],
        &["ls", "order.unpaid", "--state", "dead"],
        &["ls", "order.unpaid", "--state", "running"],
        &["ls", "order.unpaid", "key:order:unpaid:77*"],
        &["ls", "order.unpaid", "--state", "dead", "error:~nothing"],
        &["show", "order:unpaid:777"],
        &["why", "order:unpaid:777"],
        &["why", "order:unpaid:dead-777"],
        &["journal", "order.unpaid"],
        &["check", "--max-overdue", "5s", "--max-dead", "10000000"],
        &["cancel", "order:unpaid:778"],
        &["reschedule", "order:unpaid:779", "--to", "3h"],
    ] {
        timed(&scene, command).await;
    }
    let replayed = REPLAYED.to_string();
    let replay = ["dead", "replay", "order.unpaid", "--limit", &replayed, "--yes", "--expect", &replayed];
    let ran = timed(&scene, &replay).await;
    assert!(ran.out.contains(&format!("done={REPLAYED} skipped=0 failed=0")), "{ran:?}");
    let verified = timed(&scene, &["verify"]).await;
    assert!(verified.out.ends_with("faults=0\n"), "{verified:?}");
}

/// Runs a command; what the server found slow about it is a failure.
async fn timed(scene: &Scene, command: &[&str]) -> Ran {
    scene.server.cmd(&["SLOWLOG", "RESET"]).await;
    scene.server.cmd(&["CONFIG", "RESETSTAT"]).await;
    let began = Instant::now();
    let ran = scene.run(command);
    let took = began.elapsed();
    let (slow, steps) = (slow(scene).await, steps(scene).await);
    let ms = took.as_secs_f64() * 1000.0;
    println!("{ms:>7.0} ms  {steps:>5} steps, {} slow  {}", slow.len(), command.join(" "));
    assert!(ran.code <= 1, "{ran:?}");
    // Now and then the machine itself takes some milliseconds, of whatever runs: two steps in a thousand are no finding.
    assert!(slow.len() <= steps / 500, "{command:?}: {} of {steps} steps: {slow:?}", slow.len());
    ran
}

/// How long each slow script took, in microseconds.
async fn slow(scene: &Scene) -> Vec<u64> {
    let log = scene.server.cmd(&["SLOWLOG", "GET", "-1"]).await;
    let log: Vec<(u64, u64, u64, Vec<redis::Value>, redis::Value, redis::Value)> =
        redis::from_redis_value(log).expect("the slow log");
    let is_script = |words: &[redis::Value]| {
        words
            .first()
            .and_then(|word| redis::from_redis_value_ref::<String>(word).ok())
            .is_some_and(|word| word.starts_with("EVAL"))
    };
    log.iter().filter(|(_, _, _, words, ..)| is_script(words)).map(|(_, _, us, ..)| *us).collect()
}

/// How many calls of scripts there were.
async fn steps(scene: &Scene) -> usize {
    let stats = scene.server.cmd(&["INFO", "commandstats"]).await;
    let stats: String = redis::from_redis_value(stats).expect("statistics");
    let calls = stats.lines().filter_map(|line| {
        line.strip_prefix("cmdstat_evalsha")?.split("calls=").nth(1)?.split(',').next()?.parse::<usize>().ok()
    });
    calls.sum()
}

async fn crowded() -> Scene {
    let server = Server::builder().config("enable-debug-command", "yes").start().await;
    let schedule = Schedule::connect(&server.plain_url()).await.expect("a schedule");
    let scene = Scene::with(server, schedule);
    scene.server.cmd(&["DEBUG", "POPULATE", FOREIGN, "foreign", "16"]).await;
    let arms =
        (0..TIMERS).map(|n| NewArm::new(n, Duration::from_secs(u64::from(3600 + n % 86_400)), Do::Succeed));
    let armed =
        scene.schedule.arm_many(&scene.orders, arms).for_each(|_, armed| assert!(armed.is_ok())).await;
    assert_eq!(armed.expect("armings"), TIMERS as usize);
    bury(&scene).await;
    scene
}

/// As an import, which is quicker than letting them die.
async fn bury(scene: &Scene) {
    let console = Console::connect(&scene.server.plain_url()).await.expect("a console");
    let topic = console.topic("order.unpaid").await.expect("the topic");
    for from in (0..LETTERS).step_by(1000) {
        let lines: Vec<_> = (from..from + 1000).map(letter).collect();
        let report = topic.import(&lines).await.expect("an import");
        assert_eq!(report.imported, 1000);
    }
}

fn letter(n: u32) -> Export {
    let line = serde_json::json!({
        "v": 1, "type": "dead_letter", "topic": "order.unpaid", "key": format!("order:unpaid:dead-{n}"),
        "id": format!("{:016x}", u64::from(n) + 1), "deadline_ms": 1_700_000_000_000_u64 + u64::from(n),
        "at_ms": 1_700_000_100_000_u64 + u64::from(n / 10), "reason": "exhausted", "attempt": 10,
        "failures": [{"attempt": 10, "at": 1_700_000_100_000_u64, "kind": "error", "error": "timeout while calling the shop"}],
        "payload": "\"Succeed\"",
    });
    serde_json::from_value(line).expect("a line")
}
