//! `faults`: breaks keylapse for real. `cargo run --release -p keylapse-faults -- help` says how.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use keylapse_faults::child::{Orders, Produce, listen, produce, produce_steadily};
use keylapse_faults::fault::{Plan, catalogue};
use keylapse_faults::harness::Cast;
use keylapse_faults::run::{durable_server, run};
use keylapse_faults::shards::{self, Outcome, Show};
use keylapse_faults::verdict::Report;
use keylapse_support::Builder;

/// Breaks keylapse for real, and prints what became of every timer.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything at once, for some seconds for each seed.
    Seeds {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// How many.
        #[arg(long, default_value_t = 20)]
        count: u64,
        /// How long each lasts, and then what it takes to drain.
        #[arg(long, default_value_t = 12)]
        seconds: u64,
    },
    /// One kind of fault after the other, as a table: what each does to lateness.
    Each,
    /// Everything at once, for long; memory and descriptors of one listener that lives must not grow.
    Soak {
        /// How long.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Nothing but listeners that are killed in the middle of handlers, with a lease of 1 s.
    KillListeners {
        /// How many.
        #[arg(long, default_value_t = 1000)]
        times: usize,
    },
    /// Nothing but servers that are killed; they keep an append-only file, synced before each reply.
    KillServers {
        /// How many.
        #[arg(long, default_value_t = 200)]
        times: usize,
    },
    /// A cluster whose primaries are killed and stopped, and whose slots move.
    DemoCluster {
        /// Less of it, in less time.
        #[arg(long)]
        quick: bool,
    },
    /// The same for a master whose sentinels choose another.
    DemoSentinel {
        /// Less of it, in less time.
        #[arg(long)]
        quick: bool,
    },
    /// One kind of fault after the other on a cluster and where there are sentinels, as a table.
    ClusterEach,
    /// Everything at once on a cluster, for some seconds for each seed.
    ClusterSeeds {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// How many.
        #[arg(long, default_value_t = 20)]
        count: u64,
        /// How long each lasts, and then what it takes to drain.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    #[command(hide = true)]
    Listen(Orders),
    #[command(hide = true)]
    Produce {
        #[command(flatten)]
        orders: Orders,
        #[command(flatten)]
        produce: Produce,
    },
}

/// Enough for four faults of a second each.
const EACH: Duration = Duration::from_secs(8);

#[tokio::main]
async fn main() -> ExitCode {
    match Options::parse().command {
        Command::Seeds { first, count, seconds } => seeds(first..first + count, seconds).await,
        Command::Each => each().await,
        Command::Soak { minutes, seed } => soak(minutes, seed).await,
        Command::KillListeners { times } => kill_listeners(times).await,
        Command::KillServers { times } => kill_servers(times).await,
        Command::DemoCluster { quick } => {
            shown("", async |folder| shards::cluster(show(quick), folder).await).await
        }
        Command::DemoSentinel { quick } => {
            shown("", async |folder| shards::sentinel(show(quick), folder).await).await
        }
        Command::ClusterEach => cluster_each().await,
        Command::ClusterSeeds { first, count, seconds } => cluster_seeds(first..first + count, seconds).await,
        Command::Listen(orders) => child(listen(&orders).await),
        Command::Produce { orders, produce: how } if orders.replicas.is_some() => {
            child(produce_steadily(&orders, &how).await)
        }
        Command::Produce { orders, produce: how } => child(produce(&orders, &how).await),
    }
}

fn child(result: keylapse::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("a child gives up: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn seeds(seeds: std::ops::Range<u64>, seconds: u64) -> ExitCode {
    let mut all_valid = true;
    for seed in seeds {
        let cast = Cast { seed, keys_per_second: 40, ..cast(Duration::from_secs(2)) };
        let plan = Plan::everything(seed, cast.lease);
        // Every second seed hears changes of keys, too.
        let flags = if seed.is_multiple_of(2) { "KExg$" } else { "Ex" };
        let server = durable_server().config("notify-keyspace-events", flags);
        all_valid &=
            one(&format!("seed={seed}"), &cast, plan, Some(Duration::from_secs(seconds)), server).await;
    }
    exit(all_valid)
}

async fn each() -> ExitCode {
    let cast = Cast { pills_per_thousand: 0, ..cast(Duration::from_secs(2)) };
    println!("| fault, four times | handled | late p50 ms | p99 | max | again | lost | early |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut all_valid = true;
    for (name, plan) in catalogue() {
        let folder = tempfile::tempdir().expect("a folder for the ledgers");
        let report = run(&cast, plan, Some(EACH), durable_server(), folder.path()).await;
        println!("{}", report.row(&name));
        if !report.is_valid() {
            explain(&report, &folder.keep());
        }
        all_valid &= report.is_valid();
    }
    exit(all_valid)
}

async fn soak(minutes: u64, seed: u64) -> ExitCode {
    // A pill would take the elder along.
    let cast = Cast { seed, elder: true, pills_per_thousand: 0, ..cast(Duration::from_secs(2)) };
    let plan = Plan::everything(seed, cast.lease);
    let time = Some(Duration::from_secs(minutes * 60));
    exit(one(&format!("soak_minutes={minutes}"), &cast, plan, time, durable_server()).await)
}

async fn kill_listeners(times: usize) -> ExitCode {
    let cast = Cast { listeners: 4, per_second: 60, pills_per_thousand: 0, ..cast(Duration::from_secs(1)) };
    let plan = Plan::killed_listeners(1, times, 150..450);
    exit(one(&format!("listener_kills={times}"), &cast, plan, None, durable_server()).await)
}

async fn kill_servers(times: usize) -> ExitCode {
    let cast = Cast { pills_per_thousand: 0, ..cast(Duration::from_secs(2)) };
    let plan = Plan::killed_servers(1, times, 100..900);
    exit(one(&format!("server_kills={times}"), &cast, plan, None, durable_server()).await)
}

fn cast(lease: Duration) -> Cast {
    Cast {
        program: std::env::current_exe().expect("this program"),
        listeners: 3,
        elder: false,
        producers: 2,
        per_second: 50,
        keys_per_second: 0,
        pills_per_thousand: 2,
        lease,
        seed: 1,
        replicas: None,
    }
}

/// Runs once and prints the line; keeps the ledgers and tells the stories if something is wrong.
async fn one(name: &str, cast: &Cast, plan: Plan, time: Option<Duration>, server: Builder) -> bool {
    let folder = tempfile::tempdir().expect("a folder for the ledgers");
    let report = run(cast, plan, time, server, folder.path()).await;
    println!("{name} {report}");
    if report.handled == 0 {
        eprintln!("nothing was handled, so nothing is proved");
    } else if report.is_valid() {
        return true;
    }
    explain(&report, &folder.keep());
    false
}

fn show(quick: bool) -> Show {
    if quick { Show::Quick } else { Show::Whole }
}

async fn cluster_seeds(seeds: std::ops::Range<u64>, seconds: u64) -> ExitCode {
    let mut all_valid = true;
    for seed in seeds {
        let time = Duration::from_secs(seconds);
        let name = format!("seed={seed} ");
        let seed = shown(&name, async |folder| shards::play_seed(seed, time, folder).await).await;
        all_valid &= seed == ExitCode::SUCCESS;
    }
    exit(all_valid)
}

async fn cluster_each() -> ExitCode {
    println!("{}", shards::HEAD);
    let mut all_valid = true;
    for (name, in_cluster, fault) in shards::faults() {
        let folder = tempfile::tempdir().expect("a folder for the ledgers");
        let outcome = shards::alone(fault, in_cluster, folder.path()).await;
        println!("{}", shards::row(name, &outcome));
        if !outcome.is_valid() {
            explain(&outcome.managed, &folder.keep());
        }
        all_valid &= outcome.is_valid();
    }
    exit(all_valid)
}

/// Runs once with several servers and prints the line; keeps the ledgers and tells the stories if something is wrong.
async fn shown(name: &str, run: impl AsyncFnOnce(&Path) -> Outcome) -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder for the ledgers");
    let outcome = run(folder.path()).await;
    println!("{name}{outcome}");
    if !outcome.is_valid() {
        explain(&outcome.managed, &folder.keep());
    }
    exit(outcome.is_valid())
}

fn explain(report: &Report, ledgers: &Path) {
    report.findings.iter().take(50).for_each(|finding| eprintln!("{finding}"));
    eprintln!("all ledgers are in {}", ledgers.display());
}

fn exit(is_valid: bool) -> ExitCode {
    if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        super::Options::command().debug_assert();
    }
}
