//! `keylapse-bench-scale`: measures the costs of timers on one server and on several, and calculates what a goal needs.
//! `--help` lists the options. docs/internals/benchmarks.md has the last results.

mod expiries;
mod listening;
mod options;
mod scene;
mod servers;
mod usage;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use keylapse_bench::scale::{Record, Row, markdown};
use keylapse_bench::{Fault, Machine, Spread, Watch};
use options::{Options, Size};
use scene::{Figures, Scene};

/// The numbers of primaries, in turn; zero is a single server.
const PRIMARIES: [usize; 4] = [0, 1, 2, 3];
/// Listeners of the largest cluster, which show the cost of each further listener.
const CROWD: usize = 4;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.map_err(Fault::from).and_then(|runtime| runtime.block_on(run(&Options::parse()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("keylapse-bench-scale: {fault}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Fault> {
    let record = match &options.from {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)?,
        None => measured(options).await?,
    };
    if let Some(path) = &options.record {
        std::fs::write(path, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    print!("{}", markdown::page(&record, &options.goal())?);
    Ok(())
}

/// Marker keys or none, the number of listeners, and the number of primaries.
type Arrangement = (bool, usize, usize);

fn arrangements() -> impl Iterator<Item = Arrangement> {
    let each =
        [true, false].into_iter().flat_map(|marker_keys| PRIMARIES.map(|count| (marker_keys, 1, count)));
    each.chain([(true, CROWD, PRIMARIES[3])])
}

async fn measured(options: &Options) -> Result<Record, Fault> {
    let (machine, watch, size) = (Machine::now()?, Watch::start(), options.size());
    let mut all: BTreeMap<Arrangement, Vec<Figures>> = BTreeMap::new();
    for round in 1..=options.rounds {
        for arrangement in arrangements() {
            let (marker_keys, listeners, primaries) = arrangement;
            eprintln!(
                "round {round}: {primaries} primaries, {listeners} listeners, marker keys: {marker_keys}"
            );
            let figures = measure(primaries, listeners, marker_keys, size).await?;
            all.entry(arrangement).or_default().push(figures);
        }
    }
    Ok(Record {
        command: "make bench OF=scale".to_owned(),
        commit: commit(),
        server: machine.server,
        processors: machine.processors,
        model: machine.model,
        busy: watch.end().to_string(),
        size: size.in_words(options.rounds),
        rows: all.into_iter().map(row).collect(),
    })
}

/// Measures one arrangement.
async fn measure(
    primaries: usize,
    listeners: usize,
    marker_keys: bool,
    size: Size,
) -> Result<Figures, Fault> {
    let mut scene = Scene::start(primaries, marker_keys, size).await?;
    if listeners > 1 {
        scene.expiries(listeners).await?;
        return Ok(scene.end());
    }
    scene.idle().await?;
    scene.overdue().await?;
    scene.punctual().await?;
    scene.timely().await?;
    scene.arm().await?;
    if primaries == 0 {
        scene.fork().await?;
    }
    Ok(scene.end())
}

fn row(((marker_keys, listeners, primaries), rounds): (Arrangement, Vec<Figures>)) -> Row {
    let names = rounds.iter().flat_map(BTreeMap::keys).cloned();
    let spread = |name: String| {
        let values: Vec<_> = rounds.iter().filter_map(|figures| figures.get(&name).copied()).collect();
        Some((name, Spread::of(&values)?))
    };
    Row { primaries, marker_keys, listeners, figures: names.filter_map(spread).collect() }
}

/// Returns the present commit, as git describes it.
fn commit() -> String {
    let asked = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let output = asked.ok().filter(|output| output.status.success());
    output.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
