//! `keylapse`: shows timers in Redis and Valkey and acts on them, for the person on call.
//!
//! The commands are in `commands`, by subject. Each calls [`keylapse_console`] and prints the result through
//! [`output`], as a table for people or as lines of JSON for programs.

mod args;
mod cli;
mod commands;
mod connect;
mod exit;
mod help;
mod listen;
mod log;
mod output;
mod recorder;
mod signals;

use clap::FromArgMatches;

use crate::cli::Cli;
use crate::exit::{CliError, Exit};
use crate::output::Output;

fn main() -> std::process::ExitCode {
    let cli = match help::command().try_get_matches().and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(cli) => cli,
        // Help and version are no errors.
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            _ = error.print();
            return exit.into();
        }
    };
    let mut out = Output::new(&cli.format);
    let exit = run(cli, &mut out).unwrap_or_else(|failed| out.failed(&failed));
    exit.into()
}

fn run(cli: Cli, out: &mut Output) -> Result<Exit, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let exit = runtime.block_on(cli::run(cli, out));
    // A pending read of the terminal must not delay the exit.
    runtime.shutdown_background();
    exit
}
