//! One run, from the curtain to the verdict.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylapse::Schedule;
use keylapse::dead_letters::DeadReason;
use keylapse_support::{Builder, Fsync, Server};
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::{micros, micros_since_1970};
use crate::fault::{Plan, Planned};
use crate::harness::{Cast, Harness, Slope};
use crate::job::{Job, Kind, attached};
use crate::ledger::{Entry, Ledger, read_all};
use crate::verdict::{Letter, Report, judge};

/// How long everything that is left may take when all faults are over.
const TO_DRAIN: Duration = Duration::from_secs(90);

/// A server that loses nothing that it has acknowledged, even if it is killed.
pub fn durable_server() -> Builder {
    Server::builder().aof(Fsync::Always)
}

/// Plays the plan for so long, or until it is done where no time is given; waits until nothing is left
/// to do, and judges.
///
/// # Panics
/// If something of the harness itself fails.
pub async fn run(cast: &Cast, plan: Plan, time: Option<Duration>, server: Builder, folder: &Path) -> Report {
    let harness = Harness::open(cast, server, folder).await;
    let url = harness.server().await.url();
    let (mut readings, stop) = (Vec::new(), AtomicBool::new(false));
    let all = async {
        tokio::select! {
            () = play_all(plan, time, &harness) => {}
            () = harness.troupe.watch_elder(&mut readings) => {}
        }
        stop.store(true, Ordering::Relaxed);
        harness.troupe.retire_producers().await;
    };
    // Keys live on for a while, and end.
    let all = async {
        tokio::join!(all, harness.foreign(cast, &url, &stop));
        harness.drain(TO_DRAIN).await
    };
    let left = tokio::select! {
        left = all => left,
        () = harness.probe(&url) => unreachable!("it goes on for ever"),
    };
    let letters = letters(&url, &Kind::ALL, cast.lease).await;
    bury(&url, cast.lease, folder).await;
    harness.troupe.close().await;
    let lines = read_all(folder).expect("ledgers that can be read");
    Report { slope: Slope::of(&readings), ..judge(&lines, &letters, micros(cast.lease), left) }
}

/// The lanes side by side.
async fn play_all(plan: Plan, time: Option<Duration>, harness: &Harness) {
    let until = time.map(|time| Instant::now() + time);
    tokio::join!(
        play(plan.server, until, async |fault| fault.strike(harness).await),
        play(plan.process, until, async |fault| fault.strike(&harness.troupe).await),
        play(plan.line, until, async |fault| fault.strike(&harness.troupe).await),
    );
}

/// One lane: a fault after the other.
pub(crate) async fn play<F>(lane: Vec<Planned<F>>, until: Option<Instant>, mut strike: impl AsyncFnMut(F)) {
    let is_over = |after: Duration| until.is_some_and(|until| Instant::now() + after >= until);
    for Planned { after, fault } in lane {
        if is_over(after) {
            break;
        }
        sleep(after).await;
        strike(fault).await;
    }
    if let Some(until) = until {
        sleep_until(until).await;
    }
}

/// Writes down which keys of other programs ended as dead letters.
async fn bury(url: &str, lease: Duration, folder: &Path) {
    let schedule = Schedule::connect(url).await.expect("the server is back");
    let letters =
        schedule.dead_letters(attached(lease).topic()).page(usize::MAX).await.expect("dead letters");
    let ledger = Ledger::open(folder).expect("a ledger");
    for letter in letters {
        ledger.write(Entry::Buried { key: String::from_utf8_lossy(&letter.key).into_owned() });
    }
}

pub(crate) async fn letters(url: &str, kinds: &[Kind], lease: Duration) -> Vec<Letter> {
    let schedule = Schedule::connect(url).await.expect("the server is back");
    let mut all = Vec::new();
    for kind in kinds {
        let letters = schedule.dead_letters(&kind.topic(lease)).page(usize::MAX).await.expect("dead letters");
        all.extend(letters.iter().map(|letter| {
            let job: &Job = letter.payload.as_ref().expect("a job of ours");
            let by_lost_leases = letter.reason == DeadReason::LostLeases;
            Letter { n: job.n, by_lost_leases, died: micros_since_1970(letter.died) }
        }));
    }
    all
}
