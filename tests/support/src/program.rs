//! A program that a test runs. It ends when its value is dropped, and its output is kept.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::wait::eventually;

/// Longer than any step takes on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A running program. Dropping this value kills its process group. The command may be a script that starts the real program,
/// as for many browsers.
#[derive(Debug)]
pub struct Program {
    child: Child,
    output: Lines,
}

type Lines = Arc<Mutex<Vec<String>>>;

impl Program {
    /// Starts a program, and discards its output.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn silent(command: &mut Command) -> io::Result<Self> {
        let child = alone(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, output: Lines::default() })
    }

    /// Starts a program, and keeps the lines of its standard output.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn talking(command: &mut Command) -> io::Result<Self> {
        let mut child = alone(command).stdout(Stdio::piped()).spawn()?;
        let output = kept(child.stdout.take());
        Ok(Self { child, output })
    }

    /// Starts a program, and keeps the lines of its standard error, which is its log.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn logging(command: &mut Command) -> io::Result<Self> {
        let mut child = alone(command).stderr(Stdio::piped()).spawn()?;
        let output = kept(child.stderr.take());
        Ok(Self { child, output })
    }

    /// Returns the lines that the program has printed until now.
    pub fn lines(&self) -> Vec<String> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line with these words, and returns the first.
    pub async fn says(&self, words: &str) -> String {
        let mut found = None;
        eventually(STEP_TIMEOUT, &format!("a line with {words:?}"), async || {
            found = self.lines().into_iter().find(|line| line.contains(words));
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// Waits until at least `times` lines have these words.
    pub async fn has_said(&self, words: &str, times: usize) {
        eventually(STEP_TIMEOUT, &format!("{times} lines with {words:?}"), async || {
            self.lines().iter().filter(|line| line.contains(words)).count() >= times
        })
        .await;
    }

    /// Returns the process ID, which no other process can get until this value is dropped.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `HUP`, to the process.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("cannot run kill").success(), "kill -s {name} {} failed", self.child.id());
    }

    /// Waits until the program has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually(STEP_TIMEOUT, "the program to end", async || {
            ended = self.child.try_wait().expect("cannot wait for the child process");
            ended.is_some()
        })
        .await;
        ended.expect("it has ended")
    }

    /// Kills the program, like a crash.
    pub fn kill(self) {
        drop(self);
    }
}

/// Writes an executable shell script.
///
/// A separate process writes the file. Linux does not execute a file that is open for writing ("Text file busy"), and a
/// program that another thread starts at that time would inherit the open file.
///
/// # Errors
/// If the file cannot be written.
pub fn script(path: &Path, body: &str) -> io::Result<()> {
    let source = path.with_extension("source");
    std::fs::write(&source, format!("#!/bin/sh\n{body}\n"))?;
    let status = Command::new("install").args(["-m", "755"]).arg(&source).arg(path).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("install {}: {status}", path.display())))
    }
}

/// Gives the command an empty standard input and its own process group.
fn alone(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).process_group(0)
}

fn kept(of: Option<impl Read + Send + 'static>) -> Lines {
    let (output, of) = (Lines::default(), of.expect("the command has a pipe for this output"));
    let kept = Arc::clone(&output);
    // The thread reads until the end, because a program with a full pipe would block.
    std::thread::spawn(move || {
        for line in BufReader::new(of).lines().map_while(Result::ok) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    output
}

impl Drop for Program {
    fn drop(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // The call fails if the whole group has ended.
        let _ = id.map(|id| kill_process_group(id, Signal::KILL));
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a process runs. A zombie, which waits for its parent, does not.
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[tokio::test]
    async fn what_it_has_started_ends_with_it() {
        let mut script = Command::new("sh");
        script.args(["-c", "sleep 1000 & echo id $!; wait"]);
        let program = Program::talking(&mut script).unwrap();
        let said = program.says("id ").await;
        let pid = said.trim_start_matches("id ").to_owned();
        assert!(runs(&pid));
        drop(program);
        eventually(STEP_TIMEOUT, "its child to end", async || !runs(&pid)).await;
    }
}
