//! Runs a program for each occurrence: no shell, and nothing of the occurrence among its arguments.

mod command;
mod group;
mod output;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use keylapse::{Done, Failure, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::time::timeout;
use tracing::info;

use self::group::Group;
use self::output::Output;
use crate::metrics;
use crate::occurrence::Occurrence;

/// "Temporary failure; the user is invited to retry" (sysexits.h): uses up no attempt.
const TRY_AGAIN: i32 = 75;
const PUT_OFF: Duration = Duration::from_secs(30);

/// What the file says of it.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) argv: Vec<String>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout: Duration,
    pub(crate) max_output: usize,
}

impl Exec {
    pub(crate) async fn deliver(&self, topic: &str, of: &Occurrence) -> Result<Outcome, Failure> {
        let began = Instant::now();
        let ended = self.run(topic, of).await;
        let outcome = match &ended {
            Ok(Outcome::Snooze(_)) => "put_off",
            Ok(_) => "done",
            Err(_) => "failed",
        };
        metrics::program(topic, outcome, began.elapsed());
        ended
    }

    /// However this ends, dropped half-way too, nothing of the program's group is left behind.
    async fn run(&self, topic: &str, of: &Occurrence) -> Result<Outcome, Failure> {
        let mut child = self
            .command(topic, of)
            .spawn()
            .map_err(|error| Failure::retry(format!("{} cannot be started: {error}", self.argv[0])))?;
        let mut group = Group::of(&child);
        let output = Output::of(&mut child, self.max_output);
        let ended = timeout(self.timeout, end_of(&mut child, of)).await;
        group.kill();
        let [stdout, stderr] = output.heard().await;
        for (from, text) in [("stdout", stdout.text()), ("stderr", stderr.text())] {
            if !text.is_empty() {
                info!(topic, id = of.id, from, output = text, "the program said");
            }
        }
        match ended {
            Ok(Ok(status)) => verdict(status, || stderr.last_line().or_else(|| stdout.last_line())),
            Ok(Err(error)) => Err(Failure::retry(format!("the program cannot be waited for: {error}"))),
            Err(_) => {
                Err(Failure::retry(format!("it had not ended after {:?}, and was killed", self.timeout)))
            }
        }
    }
}

/// It reads its input, or does not, and ends.
async fn end_of(child: &mut Child, of: &Occurrence) -> std::io::Result<ExitStatus> {
    let fed = feed(child.stdin.take(), of);
    tokio::pin!(fed);
    tokio::select! {
        ended = child.wait() => return ended,
        () = &mut fed => {}
    }
    child.wait().await
}

async fn feed(stdin: Option<ChildStdin>, of: &Occurrence) {
    if let Some(mut stdin) = stdin {
        // One that reads nothing is none the worse for it.
        let _ = stdin.write_all(&of.value.input()).await;
    }
}

/// Errors come first: what else it says may be about anything.
fn verdict(status: ExitStatus, last_line: impl FnOnce() -> Option<String>) -> Result<Outcome, Failure> {
    match status.code() {
        Some(0) => Ok(Done.into()),
        Some(TRY_AGAIN) => Ok(Outcome::Snooze(PUT_OFF)),
        _ => Err(Failure::retry(match last_line() {
            Some(last) => format!("{status}: {last}"),
            None => status.to_string(),
        })),
    }
}
