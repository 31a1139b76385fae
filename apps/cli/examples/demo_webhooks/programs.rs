//! The programs that the demo starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use keylapse_support::Program;

use crate::Result;

/// Returns the path of the program `keylapse`, which is built in the folder above the demo's own.
pub(crate) fn keylapse() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = this.parent().and_then(Path::parent).ok_or("the path of the demo has no parent folder")?;
    let program = folder.join("keylapse");
    if program.exists() {
        Ok(program)
    } else {
        Err("`keylapse` is not built: run `make demo SHOW=webhooks`".into())
    }
}

/// Starts a program, and returns it with the address that it logs.
pub(crate) async fn listening(command: &mut Command) -> Result<(Program, String)> {
    let program = Program::logging(command)?;
    let line = program.says("listening at ").await;
    let (_, address) = line.split_once("listening at ").ok_or("the log line has no address")?;
    Ok((program, address.trim_end_matches('/').to_owned()))
}
