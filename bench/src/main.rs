//! `keylapse-bench`: runs the systems side by side. `--help` lists the options.

use std::fs::File;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use keylapse_bench::records::Records;
use keylapse_bench::table::table;
use keylapse_bench::{Case, Fault, Machine, System, Watch, conditions, last_line, plan, plots, rounds};

/// Our systems that take part in a quick run, and the number of the others.
const QUICK_OURS: [&str; 4] = ["keylapse", "keylapse-no-markers", "bare-script", "ceiling"];
const QUICK_PEERS: usize = 3;

/// Runs keylapse and other systems side by side, and prints how long each took.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Options {
    /// Run keylapse, its bounds and the fastest others for under three minutes.
    #[arg(long)]
    quick: bool,
    /// Run the quick plan with few jobs, only to check that the harness works.
    #[arg(long, conflicts_with = "quick")]
    tiny: bool,
    /// Make each measurement this many times.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Run only these systems, separated by commas. By default, all that can run here take part.
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Run only these measures, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(plan::SECTIONS))]
    measures: Vec<String>,
    /// Read the systems from this folder.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/peers"))]
    peers: PathBuf,
    /// Write a line of JSON for each figure to this file.
    #[arg(long)]
    records: Option<PathBuf>,
    /// Draw charts of the records into this folder; needs `--records` or `--draw`.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Draw the records of earlier runs from these files, separated by commas, and measure nothing.
    #[arg(long, value_delimiter = ',', requires = "plots", conflicts_with = "records")]
    draw: Vec<PathBuf>,
    /// Print the cases without running them.
    #[arg(long)]
    list: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("keylapse-bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases, and returns whether all runs succeeded.
async fn run(options: &Options) -> Result<bool, Fault> {
    let cases = cases(options);
    if options.list {
        list(options, &cases)?;
        return Ok(true);
    }
    if let (Some(folder), false) = (&options.plots, options.draw.is_empty()) {
        draw(&options.draw, folder)?;
        return Ok(true);
    }
    let machine = Machine::now()?;
    println!(
        "{}, {} processors ({}), load {:.1}, {} rounds\n",
        machine.server,
        machine.processors,
        machine.model,
        machine.load.unwrap_or(f64::NAN),
        options.rounds
    );
    let systems = systems(options).await?;
    let out: Box<dyn Write> = match &options.records {
        Some(path) => Box::new(File::create(path)?),
        None => Box::new(std::io::sink()),
    };
    let (mut records, mut results, mut whole) = (Records::new(out, &machine)?, Vec::new(), true);
    for case in &cases {
        let watch = Watch::start();
        let all = rounds::run(case, &systems, options.rounds).await?;
        let (busy, shown) = (watch.end(), results.len());
        for measured in all {
            whole &= measured.failures.is_empty();
            records.write(&measured, &busy)?;
            results.push(measured);
        }
        let all = &results[shown..];
        if all.iter().any(|one| one.has_it) {
            println!("{}", table(case, all, &conditions(&busy, &results)));
            stdout().flush()?;
        }
    }
    if let (Some(folder), Some(path)) = (&options.plots, &options.records) {
        draw(std::slice::from_ref(path), folder)?;
    }
    println!("{}", last_line(&results));
    Ok(whole)
}

/// Prints each case and its number of runs, if all systems can run here.
fn list(options: &Options, cases: &[Case]) -> Result<(), Fault> {
    let folders = chosen(options)?;
    let mut all = 0;
    for case in cases {
        let systems = folders.iter().filter(|folder| case.who.includes(folder)).count();
        let runs = systems * case.rounds.unwrap_or(options.rounds);
        println!("{case}: {runs} runs{}", if case.side_by_side { ", side by side" } else { "" });
        all += runs;
    }
    println!("{all} runs at most: systems that do not have a measure or cannot run here are skipped");
    Ok(())
}

fn draw(records: &[PathBuf], folder: &Path) -> Result<(), Fault> {
    plots::draw(records, folder)?.iter().for_each(|file| println!("drawn: {file}"));
    Ok(())
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = match (options.quick, options.tiny) {
        (true, _) => plan::quick(plan::QUICK),
        (_, true) => plan::quick(plan::TINY),
        _ => plan::long(plan::LONG),
    };
    cases.retain(|case| {
        options.measures.is_empty() || options.measures.iter().any(|name| name == case.section)
    });
    cases
}

/// Returns the folders of the chosen systems.
fn chosen(options: &Options) -> Result<Vec<String>, Fault> {
    let mut folders = System::folders(&options.peers)?;
    if !options.systems.is_empty() {
        if let Some(unknown) = options.systems.iter().find(|name| !folders.contains(name)) {
            return Err(format!("unknown system {unknown}: choose from {}", folders.join(", ")).into());
        }
        folders.retain(|name| options.systems.contains(name));
    } else if options.quick {
        folders = by_speed(&folders);
    }
    Ok(folders)
}

/// Opens the systems that take part, and prints why others do not.
async fn systems(options: &Options) -> Result<Vec<System>, Fault> {
    let (mut systems, mut others) = (Vec::new(), 0);
    for folder in chosen(options)? {
        if options.quick && options.systems.is_empty() && others == QUICK_PEERS {
            break;
        }
        match System::open(&options.peers, &folder).await {
            Ok(Ok(system)) => {
                let described = &system.described;
                println!("{folder}: {} {}, {}", described.name, described.version, described.settings);
                others += usize::from(!system.is_ours());
                systems.push(system);
            }
            Ok(Err(reason)) => println!("{folder}: skipped, {reason}"),
            Err(fault) => println!("FAILED {fault}"),
        }
    }
    println!();
    Ok(systems)
}

/// Returns our systems of a quick run, then the others, the fastest of the last long run first.
fn by_speed(folders: &[String]) -> Vec<String> {
    let fastest: Vec<&str> =
        include_str!("../fastest").lines().filter(|line| !line.starts_with('#')).collect();
    let ours = folders.iter().filter(|name| QUICK_OURS.contains(&name.as_str()));
    let others = fastest.iter().filter_map(|fast| folders.iter().find(|name| name == fast));
    ours.chain(others).cloned().collect()
}
