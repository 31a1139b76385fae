//! Runs a program for each occurrence, without a shell. Nothing of the occurrence is among its arguments.

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

use self::group::ProcessGroup;
use self::output::Output;
use crate::metrics;
use crate::occurrence::Occurrence;

/// `EX_TEMPFAIL` of sysexits.h, "the user is invited to retry". It uses up no attempt.
const TRY_AGAIN: i32 = 75;
const PUT_OFF: Duration = Duration::from_secs(30);

/// The settings of a program.
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
            Ok(Outcome::Snooze(_)) => "snoozed",
            Ok(_) => "done",
            Err(_) => "failed",
        };
        metrics::program(topic, outcome, began.elapsed());
        ended
    }

    /// Runs the program. Its process group is killed at the end, also if this future is dropped.
    async fn run(&self, topic: &str, of: &Occurrence) -> Result<Outcome, Failure> {
        let mut child = self
            .command(topic, of)
            .spawn()
            .map_err(|error| Failure::retry(format!("{} cannot be started: {error}", self.argv[0])))?;
        let mut group = ProcessGroup::of(&child);
        let output = Output::of(&mut child, self.max_output);
        let ended = timeout(self.timeout, end_of(&mut child, of)).await;
        group.kill();
        let [stdout, stderr] = output.heard().await;
        for (from, text) in [("stdout", stdout.text()), ("stderr", stderr.text())] {
            if !text.is_empty() {
                info!(topic, id = of.id, from, output = text, "program output");
            }
        }
        match ended {
            // Standard error comes first, as standard output may be about anything.
            Ok(Ok(status)) => verdict(status, || stderr.last_line().or_else(|| stdout.last_line())),
            Ok(Err(error)) => Err(Failure::retry(format!("cannot wait for the program: {error}"))),
            Err(_) => Err(Failure::retry(format!(
                "the program had not ended after {:?}, and was killed",
                self.timeout
            ))),
        }
    }
}

/// Writes the input of the program, and waits until the program ends. It need not read its input.
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
        // The write fails if the program does not read its input, which is no error.
        let _ = stdin.write_all(&of.value.input()).await;
    }
}

/// Returns how an attempt ends, from the exit status of its program.
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
