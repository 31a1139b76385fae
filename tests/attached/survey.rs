//! What attaching would mean is told without writing anything, and so is what there is.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, UNIX_EPOCH};

use keylapse::{Attached, ErrorKind, Schedule};
use keylapse_console::Console;
use keylapse_support::{Server, eventually};

use crate::scene::{Notes, PATIENCE, Running, now, orders, orders_with_values, server};

/// A line of INFO.
async fn info(server: &Server, section: &str, name: &str) -> String {
    let all: String = redis::from_redis_value(server.cmd(&["INFO", section]).await).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).map(str::to_owned);
    line.unwrap_or_default()
}

async fn fill(server: &Server) {
    let mut pipeline = redis::pipe();
    let mut set = |key: &str, value: &str, ttl: Option<u64>| {
        let set = pipeline.cmd("SET").arg(format!("app:order:{key}")).arg(value);
        ttl.map(|ttl| set.arg("EX").arg(ttl));
        set.ignore();
    };
    for id in 0..2000 {
        set(&id.to_string(), "0123456789", Some(9000));
    }
    set("lasting", "x", None);
    set("empty", "", Some(9000));
    set("large", &"x".repeat(1025), Some(9000));
    set(&"long".repeat(1024), "x", Some(9000));
    pipeline.cmd("HSET").arg("app:order:hash").arg("a").arg("b").ignore();
    pipeline.cmd("EXPIRE").arg("app:order:hash").arg(9000).ignore();
    pipeline.cmd("SET").arg("app:others:1").arg("x").arg("EX").arg(9000).ignore();
    pipeline.cmd("SET").arg("app:order:1:2").arg("x").arg("EX").arg(9000).ignore();
    pipeline.exec_async(&mut server.conn().await).await.unwrap();
}

#[tokio::test]
async fn a_survey_says_what_attaching_would_mean_and_writes_nothing() {
    let server = server("").await;
    fill(&server).await;
    let schedule = Schedule::connect(server.app_url().as_str()).await.unwrap();
    let console = Console::connect(server.app_url().as_str()).await.unwrap();
    let survey = || console.survey("app:order:{id}").unwrap().watch(Duration::ZERO);
    let changes = info(&server, "persistence", "rdb_changes_since_last_save").await;
    let keys = server.cmd(&["DBSIZE"]).await;
    server.cmd(&["CONFIG", "RESETSTAT"]).await;
    let began = Instant::now();
    let found = survey().scan_rate(4000).run().await.unwrap();
    // 2,007 keys at 4,000 a second.
    assert!(began.elapsed() >= Duration::from_millis(450), "{found:?}");
    assert_eq!((found.matching, found.with_deadline, found.tracked), (2004, 2003, 2003), "{found:?}");
    assert_eq!((found.keys, found.too_long), (Some(2007), 1), "{found:?}");
    let found = survey().cap(100).run().await.unwrap();
    assert_eq!((found.with_deadline, found.tracked), (2003, 100), "{found:?}");
    let counts = schedule.attached_counts(Attached::new(orders()).topic()).await.unwrap();
    assert_eq!((counts.tracked, counts.next_check, counts.lapses), (0, None, 0));

    assert_eq!(info(&server, "persistence", "rdb_changes_since_last_save").await, changes);
    assert_eq!(server.cmd(&["DBSIZE"]).await, keys);
    let all: String = redis::from_redis_value(server.cmd(&["INFO", "commandstats"]).await).unwrap();
    let called: BTreeSet<_> = all.lines().filter_map(|line| line.strip_prefix("cmdstat_")).collect();
    let reads = ["scan", "time", "pexpiretime", "type", "memory|usage", "info", "dbsize", "hlen", "zrange"];
    let others = ["evalsha", "eval", "script|", "hello", "auth", "client|", "config|", "select"];
    for command in called {
        let name = command.split(':').next().unwrap();
        let known = reads.contains(&name) || others.iter().any(|other| name.starts_with(other));
        assert!(known, "{command}");
    }
    let refused = schedule.attached_counts(&orders()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

#[tokio::test]
async fn counts_say_what_is_enrolled_and_when_the_next_is_looked_at() {
    let (server, notes) = (server("Ex").await, Notes::default());
    let deadline = now() + 60_000;
    for (id, more) in [("1", 0), ("2", 5000), ("3", 9000)] {
        let until = (deadline + more).to_string();
        server.cmd(&["SET", &format!("app:order:{id}"), "x", "PXAT", &until]).await;
    }
    let attached = || orders_with_values().scan_every(Duration::from_millis(100));
    let listener = Running::start(&server, |builder| builder.attach(attached(), notes.failing(1)));
    let schedule = Schedule::connect(server.app_url().as_str()).await.unwrap();
    let counts = async || schedule.attached_counts(attached().topic()).await.unwrap();
    let next =
        async || counts().await.next_check.map(|at| at.duration_since(UNIX_EPOCH).unwrap().as_millis());
    // A quarter of a second before the deadline the value is read once more.
    let first = u128::from(deadline - 250);
    eventually(PATIENCE, "all to be enrolled", async || counts().await.tracked == 3).await;
    eventually(PATIENCE, "the next check", async || next().await == Some(first)).await;
    assert_eq!(counts().await.lapses, 0);
    server.cmd(&["SET", "app:order:1", "x", "PX", "1500"]).await;
    eventually(PATIENCE, "its lapse, which is to be retried", async || counts().await.lapses == 1).await;
    eventually(PATIENCE, "the note of it", async || counts().await.histories == 1).await;
    assert_eq!(counts().await.tracked, 2);
    listener.stop().await;
}
