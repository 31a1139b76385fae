//! A system: a folder with an executable `run`. The harness needs nothing else of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::{Fault, Variable};

const CANNOT_RUN_HERE: i32 = 77;
const HAS_NOT: i32 = 78;
/// The limit of `check`, which builds or installs the system when it first runs.
const CHECK: Duration = Duration::from_secs(1800);
const DESCRIBE: Duration = Duration::from_secs(60);

/// The description that a system prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// The version of the installed library.
    pub version: String,
    /// The language of the library.
    pub language: String,
    /// The chosen settings, with reasons.
    pub settings: String,
    /// True if a job whose worker is killed runs again.
    pub survives_a_crash: bool,
    /// Features of other systems that it leaves out.
    pub leaves_out: String,
}

/// A system that can run here.
#[derive(Clone, Debug)]
pub struct System {
    folder: String,
    run: PathBuf,
    /// The description that it printed.
    pub described: Described,
}

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq)]
pub enum Run {
    /// The JSON of the last line.
    Printed(Value),
    /// The system does not have the measure.
    HasNot,
    /// The run failed, with the reason.
    Failed(String),
}

impl System {
    /// Returns the folders that hold a system: ours first, then the others by name.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn folders(peers: &Path) -> Result<Vec<String>, Fault> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(peers).map_err(|error| format!("{}: {error}", peers.display()))? {
            let entry = entry?;
            if entry.path().join("run").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_by_key(|name| (rank(name), name.clone()));
        Ok(names)
    }

    /// Opens a system: runs its `check` and its `describe`. Returns the reason if it cannot run here.
    ///
    /// # Errors
    /// If the system violates the protocol.
    pub async fn open(peers: &Path, folder: &str) -> Result<Result<Self, String>, Fault> {
        let run = peers.join(folder).join("run");
        let exit = run_to_end(&run, "check", &[], CHECK).await?;
        match exit.code {
            Some(0) => {}
            Some(CANNOT_RUN_HERE) => return Ok(Err(exit.reason())),
            _ => return Err(format!("{folder}: its check failed: {}", exit.reason()).into()),
        }
        let exit = run_to_end(&run, "describe", &[], DESCRIBE).await?;
        let described = serde_json::from_str(exit.out.trim()).map_err(|error| {
            format!("{folder}: its description cannot be read ({error}): {}", exit.reason())
        })?;
        Ok(Ok(Self { folder: folder.to_owned(), run, described }))
    }

    /// Returns the name of its folder, which names the system.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Returns whether the system is ours: keylapse, or a bound to measure it by.
    pub fn is_ours(&self) -> bool {
        Self::is_one_of_ours(&self.folder)
    }

    /// Returns whether the system in this folder is ours.
    pub fn is_one_of_ours(folder: &str) -> bool {
        rank(folder) < OURS.len()
    }

    /// Runs a measure to its end.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn measure(&self, measure: &str, with: &[Variable], limit: Duration) -> Result<Run, Fault> {
        let exit = run_to_end(&self.run, measure, with, limit).await?;
        Ok(match exit.code {
            Some(0) => match exit.out.trim().lines().last().map(serde_json::from_str) {
                Some(Ok(printed)) => Run::Printed(printed),
                _ => Run::Failed(format!("its last line is not JSON: {:?}", exit.out.lines().last())),
            },
            Some(HAS_NOT) => Run::HasNot,
            _ => Run::Failed(exit.reason()),
        })
    }

    /// Runs a measure until it prints its first line, then kills it with all processes that it has started.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn kill_after_a_line(
        &self,
        measure: &str,
        with: &[Variable],
        limit: Duration,
    ) -> Result<Run, Fault> {
        let mut child = start(&self.run, measure, with)?;
        let mut line = String::new();
        let read = async {
            match child.stdout.take() {
                Some(out) => BufReader::new(out).read_line(&mut line).await,
                None => Ok(0),
            }
        };
        let in_time = timeout(limit, read).await;
        // Without a line, the program may have ended by itself, and its exit code counts.
        let ended =
            if line.is_empty() { timeout(Duration::from_secs(1), child.wait()).await.ok() } else { None };
        kill(&child);
        let status = match ended {
            Some(status) => status?,
            None => child.wait().await?,
        };
        Ok(match (in_time, serde_json::from_str(line.trim())) {
            (Ok(_), Ok(printed)) => Run::Printed(printed),
            _ if status.code() == Some(HAS_NOT) => Run::HasNot,
            (Err(_), _) => Run::Failed(format!("nothing was printed within {limit:?}")),
            _ => Run::Failed(format!("it ended before it had begun: {status}")),
        })
    }
}

/// The systems of this package's own program. They come first, in this order.
pub const OURS: [&str; 7] = [
    "keylapse",
    "keylapse-no-markers",
    "bare-script",
    "bare-script-no-markers",
    "bare-zadd",
    "ceiling",
    "floor",
];

fn rank(folder: &str) -> usize {
    OURS.iter().position(|ours| *ours == folder).unwrap_or(OURS.len())
}

struct Exit {
    code: Option<i32>,
    out: String,
    complaints: String,
}

impl Exit {
    fn reason(&self) -> String {
        let last: Vec<&str> = self.complaints.trim().lines().rev().take(3).collect();
        match (last.is_empty(), self.code) {
            (false, _) => last.into_iter().rev().collect::<Vec<_>>().join(" / "),
            (true, Some(code)) => format!("it ended with {code} and printed nothing"),
            (true, None) => "it was killed and printed nothing".to_owned(),
        }
    }
}

/// Starts `run` in a process group of its own, which is killed as a whole.
fn start(run: &Path, measure: &str, with: &[Variable]) -> Result<Child, Fault> {
    let mut command = Command::new(run);
    command.arg(measure).envs(with.iter().cloned()).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("{}: {error}", run.display()).into())
}

fn kill(child: &Child) {
    if let Some(group) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process_group(group, Signal::KILL); // it may have ended
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(mut from) = from {
        from.read_to_end(into).await.ok();
    }
}

async fn run_to_end(run: &Path, measure: &str, with: &[Variable], limit: Duration) -> Result<Exit, Fault> {
    let mut child = start(run, measure, with)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut printed, mut complaints) = (Vec::new(), Vec::new());
    let ended = {
        let all = async { tokio::join!(read(out, &mut printed), read(err, &mut complaints), child.wait()).2 };
        timeout(limit, all).await
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ended {
        Ok(status) => Ok(Exit { code: status?.code(), out: text(&printed), complaints: text(&complaints) }),
        Err(_) => {
            kill(&child);
            child.wait().await?;
            Ok(Exit { code: None, out: String::new(), complaints: format!("it took more than {limit:?}") })
        }
    }
}
