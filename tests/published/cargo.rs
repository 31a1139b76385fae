//! Cargo, as a user calls it.

use std::env;
use std::path::Path;
use std::process::Command;

/// The cargo that runs this test.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns what a command prints, or its complaint if it fails.
pub(crate) fn run(folder: &Path, command: &mut Command) -> Result<String, String> {
    let done = command.current_dir(folder).output().map_err(|error| error.to_string())?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}
