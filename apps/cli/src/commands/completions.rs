//! `keylapse completions` and `keylapse man`.

use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Which one.
    shell: Shell,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// The folder.
    folder: PathBuf,
}

pub(crate) fn write(mut program: Command, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "keylapse", &mut text);
    out.say(String::from_utf8_lossy(&text).trim_end())?;
    Ok(Exit::Fine)
}

pub(crate) fn write_man(program: Command, args: &ManArgs, out: &mut Output) -> Result<Exit, Failed> {
    std::fs::create_dir_all(&args.folder)?;
    clap_mangen::generate_to(program, &args.folder)?;
    out.note(format!("written to {}", args.folder.display()));
    Ok(Exit::Fine)
}
