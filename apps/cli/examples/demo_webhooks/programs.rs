//! The programs that the demo starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use keylapse_support::Program;

use crate::Result;

/// The program `keylapse`, beside this one.
pub(crate) fn keylapse() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = this.parent().and_then(Path::parent).ok_or("this program is in no folder")?;
    let program = folder.join("keylapse");
    if program.exists() {
        Ok(program)
    } else {
        Err("build the program first: make demo SHOW=webhooks does".into())
    }
}

/// One that says in its log where it listens. Answers that, too.
pub(crate) async fn listening(command: &mut Command) -> Result<(Program, String)> {
    let program = Program::logging(command)?;
    let line = program.says("listening at ").await;
    let (_, address) = line.split_once("listening at ").ok_or("no address")?;
    Ok((program, address.trim_end_matches('/').to_owned()))
}
