//! One run with several servers, from the curtain to the verdict.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use keylapse_support::Proxy;
use keylapse_testing::LocalCluster;
use tokio::time::{Instant, sleep};

use super::{Group, Outcome, ShardPlan, Stage, witness};
use crate::clock::micros;
use crate::harness::Cast;
use crate::job::Kind;
use crate::ledger::read_all;
use crate::run::{letters, play};
use crate::verdict::judge;

/// How long everything that is left may take when all faults are over.
const TO_DRAIN: Duration = Duration::from_secs(60);
/// What attached topics need.
pub(super) const FLAGS: &str = "KExg$";
/// Else all nodes refuse everything, ends of attempts too, from when one is called failed until it is replaced.
pub(super) const SERVES_THE_REST: &str = "cluster-require-full-coverage no";
/// Where clients find the nodes whose lines may fail.
const BESIDE: &str = "127.0.0.2";

/// Two listeners and two producers, who arm so much each second together, and ask for all of so many replicas each second
/// time.
///
/// # Panics
/// If this program cannot be found.
pub fn shard_cast(per_second: u64, replicas: u32, seed: u64) -> Cast {
    Cast {
        program: std::env::current_exe().expect("this program"),
        listeners: 2,
        elder: false,
        producers: 2,
        per_second: per_second / 2,
        keys_per_second: 0,
        pills_per_thousand: 0,
        lease: Duration::from_secs(4),
        seed,
        replicas: Some(replicas),
    }
}

/// Plays a plan on a stage for so long, or until it is done where no time is given, waits until nothing is left, and
/// judges.
///
/// # Panics
/// If something of the harness itself fails.
pub(super) async fn run(
    cast: &Cast,
    stage: Stage,
    plan: ShardPlan,
    time: Option<Duration>,
    calm: Duration,
    folder: &Path,
) -> Outcome {
    if cast.keys_per_second > 0 {
        witness::until_heard(&stage.group, cast.listeners).await;
    }
    tokio::select! {
        _ = async { tokio::join!(faults(&stage, plan, time, calm), stage.orders.play()) } => {}
        never = witness::enrolments(&stage.group, &stage.troupe.ledger) => match never {},
        never = witness::expiries(&stage.group, &stage.troupe.ledger) => match never {},
        never = witness::subscriptions(&stage.group, &stage.troupe.ledger) => match never {},
    }
    stage.say("all is over; what is left runs");
    let left = stage.drain(TO_DRAIN).await;
    let (nodes, moved_slots) = (stage.group.nodes().len(), stage.slots_moved());
    let letters = letters(&stage.group.url(), &[Kind::Sharded], cast.lease).await;
    let Stage { troupe, group, lines, .. } = stage;
    troupe.close().await;
    drop((group, lines));
    let ledger = read_all(folder).expect("ledgers that can be read");
    let managed = judge(&ledger, &letters, micros(cast.lease), left);
    Outcome { managed, has_keys: cast.keys_per_second > 0, nodes, moved_slots }
}

/// The lanes side by side, with a calm before and after them; then nothing new is begun.
async fn faults(stage: &Stage, plan: ShardPlan, time: Option<Duration>, calm: Duration) {
    sleep(calm).await;
    let until = time.map(|time| Instant::now() + time);
    tokio::join!(
        play(plan.servers, until, async |fault| fault.strike(stage).await),
        play(plan.process, until, async |fault| fault.strike(&stage.troupe).await),
        play(plan.line, until, async |fault| fault.strike(stage).await),
    );
    stage.group.wait_until_ok().await;
    sleep(calm).await;
    stage.orders.stop();
    stage.troupe.retire_producers().await;
}

/// Everything at once, for so long.
///
/// # Panics
/// If something of the harness itself fails.
pub async fn play_seed(seed: u64, time: Duration, folder: &Path) -> Outcome {
    let cast = Cast { listeners: 3, keys_per_second: 50, ..shard_cast(200, 1, seed) };
    let config = ["appendonly yes", "appendfsync always", SERVES_THE_REST];
    let builder = config
        .iter()
        .fold(LocalCluster::builder().notifications(FLAGS), |builder, line| builder.config(line));
    let cluster = builder.announced_host(BESIDE).start().await.expect("a cluster");
    let lines = join_all(cluster.nodes().iter().map(|node| Proxy::beside_port(node.port()))).await;
    let stage = Stage::open(&cast, Group::Cluster(cluster), lines, folder, false).await;
    let plan = ShardPlan::everything(seed, cast.lease);
    run(&cast, stage, plan, Some(time), Duration::from_secs(1), folder).await
}
