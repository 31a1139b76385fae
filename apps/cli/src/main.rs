//! `keylapse`: looks at and acts on timers in Redis and Valkey, for the person on call.
//!
//! The commands are in `commands`, by subject: each asks [`keylapse_console`] and writes the answer through
//! [`output`], as a table for people or as lines of JSON for programs.

mod args;
mod cli;
mod commands;
mod connect;
mod exit;
mod listen;
mod log;
mod output;
mod recorder;
mod signals;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::{Exit, Failed};
use crate::output::Output;

fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no mistakes.
        Err(said) => {
            let exit = if said.use_stderr() { Exit::Usage } else { Exit::Fine };
            _ = said.print();
            return exit.into();
        }
    };
    let mut out = Output::new(&cli.format);
    let exit = run(cli, &mut out).unwrap_or_else(|failed| out.failed(&failed));
    exit.into()
}

fn run(cli: Cli, out: &mut Output) -> Result<Exit, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let exit = runtime.block_on(cli::run(cli, out));
    // A read of the terminal that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    exit
}
