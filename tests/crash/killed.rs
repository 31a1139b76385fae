//! P1 and P5: a listener is killed inside a handler, and another one runs the
//! lapse within the lease and about a second.

use std::time::{Duration, Instant};

use keylapse_support::{Server, skipped, took_at_most};

use crate::crash::child::{Journal, Listening, arm, scheduled};

/// The bound on top of the lease: a process to be scheduled.
const ABOUT_A_SECOND: Duration = Duration::from_millis(1500);
/// Loops of kills side by side.
const LANES: usize = 4;

/// How many kills: a few as a rule, 200 and more with `KEYLAPSE_KILLS`.
fn kills() -> usize {
    std::env::var("KEYLAPSE_KILLS").map_or(12, |kills| kills.parse().expect("KEYLAPSE_KILLS is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn timed_p1_p5_what_a_killed_listener_held_runs_again_within_the_lease_and_a_second() {
    let server = Server::start().await;
    let lanes =
        (0..LANES).map(|lane| kill_loop(&server, lane, kills().div_ceil(LANES), Duration::from_secs(1)));
    let mut recovered: Vec<_> = futures::future::join_all(lanes).await.into_iter().flatten().collect();
    recovered.sort();
    let (count, middle) = (recovered.len(), recovered[recovered.len() / 2]);
    println!("{count} kills, lease 1 s: 0 lost; recovered p50 {middle:?}, max {:?}", recovered[count - 1]);
}

/// The default lease of 30 s; only where there is time for it.
#[tokio::test(flavor = "multi_thread")]
async fn p5_the_default_lease() {
    if std::env::var("KEYLAPSE_KILLS").is_err() {
        return skipped("it takes half a minute; set KEYLAPSE_KILLS");
    }
    let server = Server::start().await;
    let recovered = kill_loop(&server, 0, 1, Duration::from_secs(30)).await;
    println!("1 kill, lease 30 s: recovered after {:?}", recovered[0]);
}

/// Kills the holder of one timer after the other; how long each took to run
/// again. Fails if one never does.
async fn kill_loop(server: &Server, lane: usize, kills: usize, lease: Duration) -> Vec<Duration> {
    let name = format!("kill{lane}");
    let (topic, schedule) = scheduled(server, &name, lease).await;
    let mut children: Vec<_> = (0..2).map(|_| Listening::start(server, &name, lease)).collect();
    let mut recovered = Vec::with_capacity(kills);
    for kill in 0..kills {
        let id = kill.to_string();
        let mut journal = Journal::of(server, &format!("app:{name}:{id}")).await;
        arm(&schedule, &topic, &id, Duration::ZERO, "hang once").await;
        let first = journal.next(Duration::from_secs(60)).await;
        assert_eq!((first.what.as_str(), first.redelivered), ("started", false));
        let held_by = children.iter().position(|child| child.pid() == first.pid).expect("one of ours");
        children[held_by].kill();
        let killed = Instant::now();
        children[held_by] = Listening::start(server, &name, lease);
        let again = journal.next(lease + Duration::from_secs(60)).await;
        let took = killed.elapsed();
        assert_eq!((again.what.as_str(), again.redelivered), ("started", true));
        assert_eq!(again.attempt_id, first.attempt_id, "the idempotency id is the same");
        took_at_most(lease + ABOUT_A_SECOND, took, "to run again");
        assert_eq!(journal.next(Duration::from_secs(60)).await.what, "ended");
        assert_eq!(journal.left().await, 0, "run once more than needed");
        recovered.push(took);
    }
    recovered
}
