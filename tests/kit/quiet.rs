//! Days in which nothing happens: looks that would find nothing are left out, and nobody can tell.

use keylapse::handler::LapseSource;
use keylapse::stats::Stats;
use keylapse_testing::{HandlerRun, TestBed};

use crate::kit::support::{arm, bed, listen, ms, reminders, secs, succeed};

/// The listener is calm after 7 s, and sweeps every 5 s.
const AT_ONCE: [u64; 2] = [7, 7 + 86_400];

async fn bed_with_stats() -> (TestBed, Stats) {
    let bed = TestBed::new();
    let stats = listen(&bed, succeed).await.stats().clone();
    (bed, stats)
}

async fn run_that_nobody_hears_of(quiet: u64) -> HandlerRun {
    let bed = bed().await;
    bed.advance(secs(quiet)).await;
    bed.notifications().lose();
    arm(&bed, "a", secs(1)).await;
    bed.until_ran(&reminders(), ["a"]).await
}

#[tokio::test(start_paused = true)]
async fn what_nobody_hears_of_is_found_by_the_same_sweep() {
    let runs = [run_that_nobody_hears_of(AT_ONCE[0]).await, run_that_nobody_hears_of(AT_ONCE[1]).await];
    assert!(runs.iter().all(|run| run.source == LapseSource::Sweep), "{runs:#?}");
    assert_eq!(runs[0].lateness, runs[1].lateness);
}

#[tokio::test(start_paused = true)]
async fn cleared_flags_are_noticed_as_soon() {
    for quiet in AT_ONCE {
        let (bed, stats) = bed_with_stats().await;
        bed.advance(secs(quiet)).await;
        assert_eq!((stats.listener().gaps, stats.listener().anchored), (0, 1));
        bed.command(["CONFIG", "SET", "notify-keyspace-events", ""]);
        bed.advance(ms(1500)).await;
        assert_eq!(stats.listener().gaps, 1, "after {quiet} s");
        bed.command(["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
        bed.advance(ms(1500)).await;
        assert_eq!(stats.listener().anchored, 2, "after {quiet} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_the_index_loses_is_repaired_in_time() {
    let bed = bed().await;
    arm(&bed, "a", secs(AT_ONCE[1] + 60)).await;
    bed.advance(secs(AT_ONCE[1])).await;
    bed.command(["ZREM", "keylapse:{reminder/0}:due", "reminder:a"]);
    bed.advance(secs(60)).await;
    assert_eq!(bed.all_runs().len(), 1);
}
