//! Runs recipes: `cargo run -p recipes -- orders`, or `all`.

use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use futures::StreamExt;
use keylapse_support::Binary;
use recipes::record::{Circumstances, Record, Recorded};
use recipes::stage::ledger::Ledger;
use recipes::stage::{Account, Part, Stage, Tale, World, choose_tls};
use recipes::{RECIPES, Recipe, recipe};

/// Compare well-known designs of delays and queues on Redis, by hand and with keylapse.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    /// Names of recipes, or `all`.
    #[arg(value_parser = names())]
    recipes: Vec<String>,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use fewer jobs and shorter waits. The result is the same.
    #[arg(long)]
    short: bool,
    /// Write the results to this file, for the figures in the documentation.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Number of recipes that run at a time.
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    #[command(subcommand)]
    act: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run one program of a recipe. Stories start their processes with this command.
    #[command(hide = true)]
    Act(Act),
}

#[derive(Args)]
struct Act {
    recipe: String,
    program: String,
    #[arg(long)]
    url: String,
    #[arg(long)]
    ledger: String,
    #[arg(long)]
    takes_ms: u64,
    #[arg(long, value_parser = failure)]
    fails: Vec<(String, usize)>,
    #[arg(last = true)]
    words: Vec<String>,
}

fn names() -> clap::builder::PossibleValuesParser {
    RECIPES.iter().map(|recipe| recipe.name).chain(["all"]).collect::<Vec<_>>().into()
}

fn failure(text: &str) -> Result<(String, usize)> {
    let (job, times) = text.split_once('=').context("expected JOB=TIMES")?;
    Ok((job.to_owned(), times.parse()?))
}

#[tokio::main]
async fn main() -> ExitCode {
    choose_tls();
    let cli = Cli::parse();
    let outcome = match cli.act {
        Some(Command::Act(act)) => run_program(act).await.map(|()| true),
        None => play(&cli).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("recipes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_program(act: Act) -> Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let recipe = recipe(&act.recipe).with_context(|| format!("unknown recipe {}", act.recipe))?;
    let program = recipe.programs.iter().find(|(name, _)| *name == act.program);
    let (_, program) = program.with_context(|| format!("{} has no program {}", act.recipe, act.program))?;
    let takes = Duration::from_millis(act.takes_ms);
    let world = World::new(Ledger::new(act.ledger), takes, act.fails.into_iter().collect());
    program(Part { url: act.url, world, words: act.words }).await
}

/// Returns whether all results are as the documentation claims.
async fn play(cli: &Cli) -> Result<bool> {
    let wanted = |recipe: &&Recipe| cli.recipes.iter().any(|name| name == "all" || name == recipe.name);
    let program = std::env::current_exe()?;
    let stage = |recipe| Stage { recipe, seed: cli.seed, short: cli.short, program: program.clone() };
    let mut stories = run_stories(RECIPES.iter().filter(wanted).map(stage), cli.jobs);
    let (mut sums, mut played, mut well) = ([Account::default(), Account::default()], Vec::new(), true);
    while let Some((recipe, results)) = stories.next().await {
        let results = results.with_context(|| format!("recipe {} failed", recipe.name))?;
        println!("{}: {}\n\n{results}", recipe.name, recipe.about);
        for complaint in results.complaints() {
            println!("  WRONG: {complaint}");
            well = false;
        }
        println!();
        for (sum, side) in sums.iter_mut().zip(results.sums()) {
            sum.add(&side);
        }
        played.push(Recorded::of(recipe, &results));
    }
    let [hand, ours] = sums;
    println!(
        "recipes={} by_hand_lost={} by_hand_doubled={} by_hand_late_p99_ms={} lost={} early={} duplicates={} \
         unexplained={} late_p99_ms={:.1}",
        played.len(),
        hand.lost,
        hand.doubled,
        hand.late(0.99).as_millis(),
        ours.lost,
        ours.early,
        ours.doubled,
        ours.unexplained,
        ours.late(0.99).as_secs_f64() * 1000.0
    );
    if let Some(path) = &cli.record {
        let record = Record { circumstances: circumstances(cli.seed)?, recipes: played };
        std::fs::write(path, record.to_lines()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(well)
}

fn circumstances(seed: u64) -> Result<Circumstances> {
    let git = process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output()
        .context("cannot run git")?;
    let commit = String::from_utf8(git.stdout)?.trim().to_owned();
    Ok(Circumstances { seed, server: Binary::find()?.version().to_string(), commit })
}

/// Runs the stories, `jobs` at a time. Returns the results in the order of the documentation.
fn run_stories(
    stages: impl Iterator<Item = Stage>,
    jobs: usize,
) -> impl futures::Stream<Item = (&'static Recipe, Result<Tale>)> + Unpin {
    let run = |stage: Stage| async move { (stage.recipe, (stage.recipe.story)(stage).await) };
    Box::pin(futures::stream::iter(stages.map(run)).buffered(jobs.max(1)))
}
