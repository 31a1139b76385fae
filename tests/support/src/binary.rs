//! Finds the server binaries that tests may run.

use std::{
    env, fs,
    path::{self, Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{Error, Version};

/// The root of the repository. `scripts/server.sh` puts fetched servers into its folder `.server/`.
pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// Redis 7.0 is the first version with script flags, ACL selectors and PEXPIRETIME.
const OLDEST: (u32, u32, u32) = (7, 0, 0);

/// A server binary, with the version that it has printed.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
    version: Version,
}

impl Binary {
    /// Returns the server to test: `$KEYLAPSE_SERVER`, else the first on `PATH`, else the server that `make server` has
    /// fetched. A process searches only once.
    pub fn find() -> Result<Self, Error> {
        static FOUND: OnceLock<Result<Binary, Error>> = OnceLock::new();
        FOUND.get_or_init(search).clone()
    }

    /// Returns the server of [`find`](Self::find) and the servers that `$KEYLAPSE_SERVERS` lists, separated by colons. Some
    /// tests run on each of them.
    pub fn all() -> Result<Vec<Self>, Error> {
        let listed = env::var_os("KEYLAPSE_SERVERS").unwrap_or_default();
        let mut all = vec![Self::find()?];
        for path in env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()) {
            let binary = Self::at(&path)?;
            if !all.iter().any(|known| known.is_same_file(&binary)) {
                all.push(binary);
            }
        }
        Ok(all)
    }

    /// Returns the binary at this path. Fails if it is not a server that keylapse supports.
    pub fn at(path: &Path) -> Result<Self, Error> {
        let refused = format!("cannot test with {}", path.display());
        let version = ask_version(path).map_err(Error::because(&refused))?;
        // The path is not resolved: Debian's `redis-server` is a link to `redis-check-rdb`, and this program acts by the
        // name under which it is called.
        let path = path::absolute(path).map_err(Error::because(&refused))?;
        Ok(Self { path, version })
    }

    /// Returns the server's family and version number.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the absolute path of the binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_same_file(&self, other: &Self) -> bool {
        let target = |binary: &Self| fs::canonicalize(&binary.path).ok();
        target(self) == target(other)
    }
}

fn ask_version(path: &Path) -> Result<Version, Error> {
    let output = Command::new(path).arg("--version").output().map_err(Error::because("it does not run"))?;
    let line = String::from_utf8_lossy(&output.stdout);
    match Version::parse(&line) {
        Some(version) if version.number >= OLDEST => Ok(version),
        Some(version) => Err(Error::new(format!("{version} is too old: use Redis 7.0 or newer, or Valkey"))),
        None => Err(Error::new(format!("`--version` names neither Redis nor Valkey: {line:?}"))),
    }
}

fn search() -> Result<Binary, Error> {
    if let Some(named) = env::var_os("KEYLAPSE_SERVER").filter(|path| !path.is_empty()) {
        return Binary::at(Path::new(&named));
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&on_path).chain([Path::new(REPOSITORY).join(".server")]);
    let candidates = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    candidates.filter(|path| path.is_file()).find_map(|path| Binary::at(&path).ok()).ok_or_else(|| {
        Error::new(
            "no server was found in $KEYLAPSE_SERVER, on PATH or in .server/: run `make server` to fetch \
             one, or set KEYLAPSE_SERVER to the binary of Redis 7.0 or later, or of Valkey",
        )
    })
}
