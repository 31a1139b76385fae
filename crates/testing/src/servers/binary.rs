//! Which server to start.

use std::env;
use std::path::PathBuf;

use keylapse::{Error, ErrorKind, Result};

const VARIABLE: &str = "KEYLAPSE_SERVER";
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// The binary that the environment names, else the first on the `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let path = env::var_os("PATH")?;
    let candidates = env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// The one that is given, else the one that is found.
pub(super) fn or_found(given: Option<&PathBuf>) -> Result<PathBuf> {
    given.cloned().or_else(find).ok_or_else(none_found)
}

fn none_found() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "no server for tests: neither {} nor {} is on the PATH; install one, or set {VARIABLE} to the \
             binary of Redis 7.0 or newer, or of Valkey 7.2 or newer",
            NAMES[0], NAMES[1]
        ),
    )
}
