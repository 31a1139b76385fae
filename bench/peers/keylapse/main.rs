//! keylapse as one system among others: `keylapse-peer <system> <measure>`.
//!
//! What a measure is, and what the environment says, is in `bench/README.md`.

mod arm;
mod ceiling;
mod describe;
mod floor;
mod idle;
mod jobs;
mod kill;
mod lateness;
mod listen;
mod listeners;
mod memory;
mod orders;
mod recovery;
mod retries;
mod runs;
mod server_cpu;
mod throughput;

use std::process::ExitCode;

use keylapse_bench::Fault;
use orders::Orders;

/// What a measure prints, or why it could not be made.
type Outcome = Result<serde_json::Value, Fault>;

/// The exit code of a measure that a system does not have.
const HAS_NOT: u8 = 78;

/// The systems that this program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Keylapse,
    WithoutTriggers,
    Ceiling,
    Floor,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(system), Some(measure)) = (words.first().and_then(|name| named(name)), words.get(1)) else {
        eprintln!("usage: keylapse-peer keylapse|keylapse-no-triggers|ceiling|floor <measure>");
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
    match name {
        "keylapse" => Some(System::Keylapse),
        "keylapse-no-triggers" => Some(System::WithoutTriggers),
        "ceiling" => Some(System::Ceiling),
        "floor" => Some(System::Floor),
        _ => None,
    }
}

/// Makes a measure; none if the system does not have it.
async fn make(system: System, measure: &str) -> Result<Option<serde_json::Value>, Fault> {
    if measure == "describe" {
        return Ok(Some(describe::describe(system)));
    }
    let orders = Orders::read(system != System::WithoutTriggers)?;
    let made = match (system, measure) {
        (System::Ceiling, "throughput") => ceiling::throughput(&orders).await,
        (System::Floor, "lateness") => floor::lateness(&orders).await,
        (System::Ceiling | System::Floor, _) => return Ok(None),
        (_, measure) => return keylapse(system, measure, &orders).await,
    };
    made.map(Some)
}

/// Makes a measure of keylapse, with or without visible keys.
async fn keylapse(
    system: System,
    measure: &str,
    orders: &Orders,
) -> Result<Option<serde_json::Value>, Fault> {
    let made = match measure {
        "throughput" => throughput::throughput(orders).await,
        "lateness" | "requests" => lateness::lateness(orders).await,
        "arm" => arm::arm(orders).await,
        "bytes" => memory::bytes(orders).await,
        "idle" => idle::idle(orders).await,
        "kill" => kill::kill(orders).await,
        "kill_again" => kill::again(orders).await,
        "listeners" => listeners::listeners(orders, system).await,
        "listen" => listen::listen(orders).await,
        "recovery" => recovery::recovery(orders).await,
        "retries" => retries::retries(orders).await,
        _ => return Ok(None),
    };
    made.map(Some)
}
