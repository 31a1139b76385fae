//! A program beside the test: it ends with the value that owns it, and what it says is kept.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::wait::eventually;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that was started. It is killed when this is dropped, with all that it has started itself: what is asked for may
/// be a script before the program that is meant, as a browser's often is.
#[derive(Debug)]
pub struct Program {
    child: Child,
    said: Lines,
}

type Lines = Arc<Mutex<Vec<String>>>;

impl Program {
    /// Starts it. What it says goes nowhere.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn silent(command: &mut Command) -> io::Result<Self> {
        let child = alone(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, said: Lines::default() })
    }

    /// Starts it, and keeps the lines of its standard output.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn talking(command: &mut Command) -> io::Result<Self> {
        let mut child = alone(command).stdout(Stdio::piped()).spawn()?;
        let said = kept(child.stdout.take());
        Ok(Self { child, said })
    }

    /// Starts it, and keeps the lines of its standard error: its log.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn logging(command: &mut Command) -> io::Result<Self> {
        let mut child = alone(command).stderr(Stdio::piped()).spawn()?;
        let said = kept(child.stderr.take());
        Ok(Self { child, said })
    }

    /// What it has said so far.
    pub fn lines(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line that has these words, once it has been said.
    pub async fn says(&self, words: &str) -> String {
        let mut found = None;
        eventually(PATIENCE, &format!("a line with {words:?}"), async || {
            found = self.lines().into_iter().find(|line| line.contains(words));
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// Waits until so many lines have these words.
    pub async fn has_said(&self, words: &str, times: usize) {
        eventually(PATIENCE, &format!("{times} lines with {words:?}"), async || {
            self.lines().iter().filter(|line| line.contains(words)).count() >= times
        })
        .await;
    }

    /// The id of its process, which is no other's until this value is dropped.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success(), "{name} to {}", self.child.id());
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually(PATIENCE, "the program to end", async || {
            ended = self.child.try_wait().expect("it is ours");
            ended.is_some()
        })
        .await;
        ended.expect("it has ended")
    }

    /// Kills it, as a crash does.
    pub fn kill(self) {
        drop(self);
    }
}

/// Writes an executable shell script.
///
/// A process of its own writes the file: a program that another thread starts meanwhile inherits each file that this
/// process has open, and Linux refuses to execute a file that is open for writing, "Text file busy".
///
/// # Errors
/// When the file cannot be written.
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

/// With nothing to read, and in a group of its own.
fn alone(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).process_group(0)
}

fn kept(of: Option<impl Read + Send + 'static>) -> Lines {
    let (said, of) = (Lines::default(), of.expect("it was asked for"));
    let kept = Arc::clone(&said);
    // Read on until its end: a program whose lines nobody takes would stand still.
    std::thread::spawn(move || {
        for line in BufReader::new(of).lines().map_while(Result::ok) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    said
}

impl Drop for Program {
    fn drop(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended, and left nothing.
        let _ = id.map(|id| kill_process_group(id, Signal::KILL));
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it runs: one that is dead may wait for its parent to look.
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
        eventually(PATIENCE, "its child to end", async || !runs(&pid)).await;
    }
}
