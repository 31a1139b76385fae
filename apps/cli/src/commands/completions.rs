//! `keylapse completions` and `keylapse man`: shell completions and man pages.

use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use crate::exit::{CliError, Exit};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// Write the man pages into this folder, which is created if needed.
    folder: PathBuf,
}

pub(crate) fn write(mut program: Command, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "keylapse", &mut text);
    out.print_line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(Exit::Success)
}

pub(crate) fn write_man(program: Command, args: &ManArgs, out: &mut Output) -> Result<Exit, CliError> {
    std::fs::create_dir_all(&args.folder)?;
    clap_mangen::generate_to(program, &args.folder)?;
    out.note(format!("written to {}", args.folder.display()));
    Ok(Exit::Success)
}
