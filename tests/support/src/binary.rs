//! Finds the server binaries that tests may run.

use std::{
    env, fs,
    path::{self, Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{Error, Version};

/// The repository: `scripts/server.sh` leaves what it fetched in its `.server/`.
pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// Scripts with flags, ACL selectors and PEXPIRETIME all came with it.
const OLDEST: (u32, u32, u32) = (7, 0, 0);

/// A server binary that was run once to learn its version.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
    version: Version,
}

impl Binary {
    /// The server to test with: `$KEYLAPSE_SERVER`, else the first on `PATH`, else the one that
    /// `make server` fetched. Looked for once per process.
    pub fn find() -> Result<Self, Error> {
        static FOUND: OnceLock<Result<Binary, Error>> = OnceLock::new();
        FOUND.get_or_init(search).clone()
    }

    /// Every server at hand, for tests that run against each: the one of [`find`](Self::find) and
    /// those that `$KEYLAPSE_SERVERS` lists, separated by colons.
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

    /// The binary at this path, if it is a server that keylapse supports.
    pub fn at(path: &Path) -> Result<Self, Error> {
        let refused = format!("{} cannot be tested with", path.display());
        let version = ask_version(path).map_err(Error::because(&refused))?;
        // A link is kept as it is: Debian's `redis-server` is a link to `redis-check-rdb`, a program
        // that decides what to be by the name it is called.
        let path = path::absolute(path).map_err(Error::because(&refused))?;
        Ok(Self { path, version })
    }

    /// Its family and version number.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it is.
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
        Some(version) => Err(Error::new(format!("{version} is too old; Redis 7.0 and Valkey are supported"))),
        None => Err(Error::new(format!("`--version` names neither Redis nor Valkey, but says {line:?}"))),
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
