//! `keylapse-bench-scale`: what timers cost on one server and on several, and what a goal would take. `--help` says
//! what can be set, docs/scale.md what came of it last.

mod hearing;
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

/// How many primaries there are in turn; none: a server alone.
const PRIMARIES: [usize; 4] = [0, 1, 2, 3];
/// Listeners of the largest cluster, which show what each further one adds.
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

/// Whether there are visible keys, how many listeners, and how many primaries.
type Arrangement = (bool, usize, usize);

fn arrangements() -> impl Iterator<Item = Arrangement> {
    let each = [true, false].into_iter().flat_map(|triggers| PRIMARIES.map(|count| (triggers, 1, count)));
    each.chain([(true, CROWD, PRIMARIES[3])])
}

async fn measured(options: &Options) -> Result<Record, Fault> {
    let (machine, watch, size) = (Machine::now()?, Watch::start(), options.size());
    let mut all: BTreeMap<Arrangement, Vec<Figures>> = BTreeMap::new();
    for round in 1..=options.rounds {
        for arrangement in arrangements() {
            let (triggers, listeners, primaries) = arrangement;
            eprintln!(
                "round {round}: {primaries} primaries, {listeners} listeners, visible keys: {triggers}"
            );
            let figures = measure(primaries, listeners, triggers, size).await?;
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
        size: size.said(options.rounds),
        rows: all.into_iter().map(row).collect(),
    })
}

/// All that is measured of one arrangement.
async fn measure(primaries: usize, listeners: usize, triggers: bool, size: Size) -> Result<Figures, Fault> {
    let mut scene = Scene::start(primaries, triggers, size).await?;
    if listeners > 1 {
        scene.hear(listeners).await?;
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

fn row(((triggers, listeners, primaries), rounds): (Arrangement, Vec<Figures>)) -> Row {
    let names = rounds.iter().flat_map(BTreeMap::keys).cloned();
    let spread = |name: String| {
        let values: Vec<_> = rounds.iter().filter_map(|figures| figures.get(&name).copied()).collect();
        Some((name, Spread::of(&values)?))
    };
    Row { primaries, triggers, listeners, figures: names.filter_map(spread).collect() }
}

/// What git calls the present commit.
fn commit() -> String {
    let asked = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let said = asked.ok().filter(|said| said.status.success());
    said.map_or("unknown".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
