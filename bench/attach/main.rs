//! `keylapse-bench-attach`: attached topics under realistic traffic. `--help` lists the options.
//!
//! Each scene has a server of its own. Listeners and writers are processes of their own, to measure memory and processor
//! time of each. They are this program in another [`Role`]. It uses only the public API that a first user needs, so that it
//! can also be built against earlier commits, to compare figures.

mod flood;
mod hot;
mod judge;
mod line;
mod listening;
mod options;
mod process;
mod refreshing;
mod rewriting;
mod role;
mod scene;
mod sessions;

use std::process::ExitCode;

use clap::Parser;
use keylapse_bench::Fault;
use options::{Options, Scene};
use role::Role;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let done = match &words[..] {
        [_, word, role] if word == role::WORD => Role::play(role).map(|()| true),
        _ => on_runtime(play(&Options::parse())).and_then(|played| played),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("keylapse-bench-attach: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn on_runtime<T>(what: impl Future<Output = T>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Ok(runtime.block_on(what))
}

/// Plays the chosen scenes. Returns whether every promise was kept in each.
async fn play(options: &Options) -> Result<bool, Fault> {
    let mut kept = true;
    for scene in &options.scenes {
        match scene {
            Scene::Sessions => {
                for crowd in &options.sessions {
                    for flags in &options.flags {
                        kept &= sessions::play(options, crowd, flags).await?;
                    }
                }
            }
            Scene::Hot => kept &= hot::play(options).await?,
            Scene::Flood => kept &= flood::play(options).await?,
        }
    }
    Ok(kept)
}
