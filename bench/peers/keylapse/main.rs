//! keylapse as one system among others: `keylapse-peer <system> <measure>`.
//!
//! `bench/README.md` has the measures and the environment variables.

mod arm;
mod arm_latency;
mod bare;
mod bare_scripts;
mod ceiling;
mod change;
mod describe;
mod floor;
mod idle;
mod jobs;
mod kill;
mod lateness;
mod listen;
mod listeners;
mod lives;
mod memory;
mod orders;
mod ours;
mod producer;
mod recovery;
mod retries;
mod runs;
mod server_cpu;
mod throughput;

use std::process::ExitCode;

use bare::{Bare, Writes};
use keylapse_bench::Fault;
use orders::Orders;
use ours::Ours;
use producer::Producer;

/// The JSON that a measure prints, or the error.
type Outcome = Result<serde_json::Value, Fault>;

/// The exit code of a measure that a system does not have.
const HAS_NOT: u8 = 78;

/// The systems of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Keylapse,
    WithoutMarkerKeys,
    Ceiling,
    Floor,
    Bare(Writes),
}

/// The systems by the names of their folders.
const SYSTEMS: [(&str, System); 7] = [
    ("keylapse", System::Keylapse),
    ("keylapse-no-markers", System::WithoutMarkerKeys),
    ("ceiling", System::Ceiling),
    ("floor", System::Floor),
    ("bare-script", System::Bare(Writes::All)),
    ("bare-script-no-markers", System::Bare(Writes::WithoutMarkerKeys)),
    ("bare-zadd", System::Bare(Writes::Member)),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(system), Some(measure)) = (words.first().and_then(|name| named(name)), words.get(1)) else {
        let names = SYSTEMS.map(|(name, _)| name);
        eprintln!("usage: keylapse-peer {} <measure>", names.join("|"));
        return ExitCode::FAILURE;
    };
    let made = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Fault::from)
        .and_then(|runtime| runtime.block_on(make(system, measure)));
    match made {
        Ok(Some(printed)) => {
            println!("{printed}");
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::from(HAS_NOT),
        Err(fault) => {
            eprintln!("{measure}: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Option<System> {
    SYSTEMS.iter().find(|(known, _)| *known == name).map(|(_, system)| *system)
}

/// Runs a measure. Returns none if the system does not have it.
async fn make(system: System, measure: &str) -> Result<Option<serde_json::Value>, Fault> {
    if measure == "describe" {
        return Ok(Some(describe::describe(system)));
    }
    let orders = Orders::read(system != System::WithoutMarkerKeys)?;
    let made = match (system, measure) {
        (System::Ceiling, "throughput") => ceiling::throughput(&orders).await,
        (System::Floor, "lateness") => floor::lateness(&orders).await,
        (System::Ceiling | System::Floor, _) => return Ok(None),
        (System::Bare(writes), measure) => {
            return produced(&Bare::connect(&orders, writes).await?, measure, &orders).await;
        }
        (_, measure) => return keylapse(system, measure, &orders).await,
    };
    made.map(Some)
}

/// Runs a measure of producers. Returns none if it is another measure.
async fn produced(
    producer: &impl Producer,
    measure: &str,
    orders: &Orders,
) -> Result<Option<serde_json::Value>, Fault> {
    let made = match measure {
        "arm" => arm::arm(producer, orders.count).await,
        "change" => change::change(producer, orders.count).await,
        "arm_cancel" => change::arm_cancel(producer, orders.count).await,
        _ => return Ok(None),
    };
    made.map(Some)
}

/// Runs a measure of keylapse, with or without marker keys.
async fn keylapse(
    system: System,
    measure: &str,
    orders: &Orders,
) -> Result<Option<serde_json::Value>, Fault> {
    let made = match measure {
        "throughput" => throughput::throughput(orders).await,
        "lateness" | "requests" => lateness::lateness(orders).await,
        "lives" => lives::lives(orders).await,
        "arm_latency" => arm_latency::arm_latency(orders).await,
        "bytes" => memory::bytes(orders).await,
        "idle" => idle::idle(orders).await,
        "kill" => kill::kill(orders).await,
        "kill_again" => kill::again(orders).await,
        "listeners" => listeners::listeners(orders, system).await,
        "listen" => listen::listen(orders).await,
        "recovery" => recovery::recovery(orders).await,
        "retries" => retries::retries(orders).await,
        measure => return produced(&Ours::connect(orders).await?, measure, orders).await,
    };
    made.map(Some)
}
