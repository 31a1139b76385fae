//! A scene: both sides meet one fault at the same time, on one server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use keylapse_support::{Deadline, Server};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::process::Command;

use super::account::Account;
use super::actor::{Actor, Harmed, TIMEOUT};
use super::ledger::{Entry, Event, Ledger};
use super::{Stage, Told, World};

const PAUSE: Duration = Duration::from_millis(2);

/// One fault, on a server of its own, with both sides.
#[derive(Debug)]
pub struct Scene {
    title: String,
    /// The server that both sides use.
    pub server: Server,
    /// The design that articles describe.
    pub by_hand: Side,
    /// The program that does this job with keylapse.
    pub with_keylapse: Side,
    _folder: TempDir,
}

/// How long the jobs of a scene take, and which of them fail.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    takes: Duration,
    failures: Vec<(String, usize)>,
}

impl Jobs {
    /// Creates jobs that take this long.
    pub fn taking(takes: Duration) -> Self {
        Self { takes, ..Self::default() }
    }

    /// Makes the first `times` runs of a job fail.
    pub fn failing(mut self, job: &str, times: usize) -> Self {
        self.failures.push((job.to_owned(), times));
        self
    }
}

impl Stage {
    /// Starts an empty server for a scene with these jobs.
    ///
    /// # Errors
    /// If the folder of the ledgers cannot be created.
    pub async fn scene(&self, title: &str, jobs: &Jobs) -> Result<Scene> {
        let folder = tempfile::Builder::new().prefix("keylapse-recipe-").tempdir()?;
        let server = Server::start().await;
        let side = |program: &'static str| Side {
            program,
            recipe: self.recipe.name,
            executable: self.program.clone(),
            url: server.url(),
            ledger: Ledger::new(folder.path().join(program)),
            jobs: jobs.clone(),
            due: Mutex::default(),
            harmed: Harmed::default(),
        };
        let (by_hand, with_keylapse) = (side("by_hand"), side("with_keylapse"));
        Ok(Scene { title: title.to_owned(), server, by_hand, with_keylapse, _folder: folder })
    }
}

impl Scene {
    /// Returns a new connection for the story itself.
    pub async fn redis(&self) -> MultiplexedConnection {
        self.server.conn().await
    }

    /// Waits until exactly `count` lines of CLIENT LIST match `matches`.
    ///
    /// # Errors
    /// If this takes longer than 20 s.
    pub async fn until_clients(&self, count: usize, matches: impl Fn(&str) -> bool) -> Result<()> {
        let (mut redis, deadline) = (self.redis().await, Deadline::after(TIMEOUT));
        while !deadline.is_over() {
            let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut redis).await?;
            if clients.lines().filter(|client| matches(client)).count() == count {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!("{}: {count} connections of the expected kind were not found within {TIMEOUT:?}", self.title)
    }

    /// Closes every connection of both sides with CLIENT KILL.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn close_connections(&self) -> Result<()> {
        let mut redis = self.redis().await;
        for kind in ["normal", "pubsub"] {
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", kind]).query_async::<()>(&mut redis).await?;
        }
        Ok(())
    }

    /// Ends the scene, and counts how the jobs of each side have ended so far.
    ///
    /// # Errors
    /// If a ledger cannot be read.
    pub fn told(&self) -> Result<Told> {
        Ok(Told::new(&self.title, self.by_hand.account(None)?, self.with_keylapse.account(None)?))
    }

    /// Ends a scene in which jobs that have not begun by hand are overdue, not lost.
    ///
    /// # Errors
    /// If a ledger cannot be read.
    pub fn told_while_by_hand_waits(&self) -> Result<Told> {
        let by_hand = self.by_hand.account(Some(SystemTime::now()))?;
        Ok(Told::new(&self.title, by_hand, self.with_keylapse.account(None)?))
    }
}

/// One side of a scene: its jobs, its processes and its ledger.
#[derive(Debug)]
pub struct Side {
    program: &'static str,
    recipe: &'static str,
    executable: PathBuf,
    url: String,
    ledger: Ledger,
    jobs: Jobs,
    due: Mutex<BTreeMap<String, SystemTime>>,
    harmed: Harmed,
}

impl Side {
    /// Records a new job and its deadline.
    pub fn given(&self, job: &str, due: SystemTime) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).insert(job.to_owned(), due);
    }

    /// Starts the program of this side as a process.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(&self) -> Result<Actor> {
        self.start_as(self.program, &[])
    }

    /// Starts another program of the recipe, with these arguments.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start_as(&self, program: &str, words: &[&str]) -> Result<Actor> {
        self.start_behind(&self.url, program, words)
    }

    /// Starts a program with another URL of the server, for example that of a proxy that breaks connections.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start_behind(&self, url: &str, program: &str, words: &[&str]) -> Result<Actor> {
        let mut command = Command::new(&self.executable);
        command.args(["act", self.recipe, program, "--url", url, "--ledger"]).arg(self.ledger.path());
        command.args(["--takes-ms", &self.jobs.takes.as_millis().to_string()]);
        for (job, times) in &self.jobs.failures {
            command.args(["--fails", &format!("{job}={times}")]);
        }
        command.arg("--").args(words);
        // Errors are expected here, so the output goes to a file.
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.ledger.path().with_extension("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        Actor::start(&mut command, self.harmed.clone())
    }

    /// Waits until `matches` is true of the ledger. Returns false if it is not within `limit`.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub async fn until(&self, limit: Duration, matches: impl Fn(&[Entry]) -> bool) -> Result<bool> {
        let deadline = Deadline::after(limit);
        loop {
            if matches(&self.ledger.read()?) {
                return Ok(true);
            }
            if deadline.is_over() {
                return Ok(false);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until a job has begun.
    ///
    /// # Errors
    /// If it has not begun within `limit`.
    pub async fn until_began(&self, job: &str, limit: Duration) -> Result<()> {
        self.until_some("begun", job, limit, |event| event == Event::Began).await
    }

    /// Waits until a run of a job has succeeded or failed.
    ///
    /// # Errors
    /// If no run has ended within `limit`.
    pub async fn until_ended(&self, job: &str, limit: Duration) -> Result<()> {
        self.until_some("ended", job, limit, |event| event != Event::Began).await
    }

    async fn until_some(
        &self,
        what: &str,
        job: &str,
        limit: Duration,
        wanted: impl Fn(Event) -> bool,
    ) -> Result<()> {
        let matches = |ledger: &[Entry]| ledger.iter().any(|entry| entry.job == job && wanted(entry.event));
        let in_time = self.until(limit, matches).await?;
        in_time.then_some(()).with_context(|| {
            format!("{} of {}: {job} has not {what} within {limit:?}", self.program, self.recipe)
        })
    }

    /// Waits until all jobs of this side are done. Returns false if they are not within `limit`.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub async fn until_done(&self, limit: Duration) -> Result<bool> {
        self.until(limit, |ledger| {
            let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.keys().all(|job| ledger.iter().any(|entry| entry.job == *job && entry.event == Event::Done))
        })
        .await
    }

    /// Returns the lines that the processes have written so far.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.ledger.read()
    }

    /// Returns the world of this side, for jobs that the story runs in its own process.
    pub fn world(&self) -> World {
        let Jobs { takes, failures } = self.jobs.clone();
        World::new(self.ledger.clone(), takes, failures.into_iter().collect())
    }

    /// Counts how the jobs have ended so far. `waiting` is the current time if jobs that have not begun are overdue.
    fn account(&self, waiting: Option<SystemTime>) -> Result<Account> {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let harmed = self.harmed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Account::of(&due, &self.ledger.read()?, &harmed, waiting))
    }
}
