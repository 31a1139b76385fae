//! One fault, played on both sides at the same time on one server.

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
use super::actor::{Actor, Harmed, PATIENCE};
use super::ledger::{Entry, Event, Ledger};
use super::{Stage, Told, World};

const PAUSE: Duration = Duration::from_millis(2);

/// A server of its own, and the two sides.
#[derive(Debug)]
pub struct Scene {
    title: String,
    /// Where everything happens.
    pub server: Server,
    /// The design of the articles.
    pub by_hand: Side,
    /// The same job with keylapse.
    pub with_keylapse: Side,
    _folder: TempDir,
}

/// How the jobs of a scene are.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    takes: Duration,
    failures: Vec<(String, usize)>,
}

impl Jobs {
    /// They take this long.
    pub fn taking(takes: Duration) -> Self {
        Self { takes, ..Self::default() }
    }

    /// This one fails so many times first.
    pub fn failing(mut self, job: &str, times: usize) -> Self {
        self.failures.push((job.to_owned(), times));
        self
    }
}

impl Stage {
    /// Sets a scene: an empty server, whose jobs are like this.
    ///
    /// # Errors
    /// When there is no place for the ledgers.
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
    /// A connection of the story's own.
    pub async fn redis(&self) -> MultiplexedConnection {
        self.server.conn().await
    }

    /// Waits until so many connections of its server are like this, each a line of CLIENT LIST.
    ///
    /// # Errors
    /// When they are not within 20 s: the story cannot go on.
    pub async fn until_clients(&self, count: usize, like_this: impl Fn(&str) -> bool) -> Result<()> {
        let (mut redis, deadline) = (self.redis().await, Deadline::after(PATIENCE));
        while !deadline.is_over() {
            let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut redis).await?;
            if clients.lines().filter(|client| like_this(client)).count() == count {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!("{}: not {count} such connections within {PATIENCE:?}", self.title)
    }

    /// Has the server close every connection, of both sides.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn close_connections(&self) -> Result<()> {
        let mut redis = self.redis().await;
        for kind in ["normal", "pubsub"] {
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", kind]).query_async::<()>(&mut redis).await?;
        }
        Ok(())
    }

    /// The end: what became of each side's jobs, up to now.
    ///
    /// # Errors
    /// When a ledger cannot be read.
    pub fn told(&self) -> Result<Told> {
        Ok(Told::new(&self.title, self.by_hand.account(None)?, self.with_keylapse.account(None)?))
    }

    /// The end of a scene in which nothing is lost by hand: what has not begun there still waits.
    ///
    /// # Errors
    /// When a ledger cannot be read.
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
    /// Remembers that a job was given, and when it is due.
    pub fn given(&self, job: &str, due: SystemTime) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).insert(job.to_owned(), due);
    }

    /// Starts this side's program as a process.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn start(&self) -> Result<Actor> {
        self.start_as(self.program, &[])
    }

    /// Starts another program of the recipe, with more words.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn start_as(&self, program: &str, words: &[&str]) -> Result<Actor> {
        self.start_behind(&self.url, program, words)
    }

    /// Starts a program that reaches the server by this URL: through a proxy that breaks the line.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn start_behind(&self, url: &str, program: &str, words: &[&str]) -> Result<Actor> {
        let mut command = Command::new(&self.executable);
        command.args(["act", self.recipe, program, "--url", url, "--ledger"]).arg(self.ledger.path());
        command.args(["--takes-ms", &self.jobs.takes.as_millis().to_string()]);
        for (job, times) in &self.jobs.failures {
            command.args(["--fails", &format!("{job}={times}")]);
        }
        command.arg("--").args(words);
        // What fails here is meant to: whoever wants to know looks into the file.
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.ledger.path().with_extension("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        Actor::start(&mut command, self.harmed.clone())
    }

    /// Waits until the ledger is like this; false if it is not within `limit`.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn until(&self, limit: Duration, like_this: impl Fn(&[Entry]) -> bool) -> Result<bool> {
        let deadline = Deadline::after(limit);
        loop {
            if like_this(&self.ledger.read()?) {
                return Ok(true);
            }
            if deadline.is_over() {
                return Ok(false);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until this job has begun.
    ///
    /// # Errors
    /// When it has not within `limit`: the story cannot go on.
    pub async fn until_began(&self, job: &str, limit: Duration) -> Result<()> {
        self.until_some("begun", job, limit, |event| event == Event::Began).await
    }

    /// Waits until a run of this job has ended, well or not.
    ///
    /// # Errors
    /// When none has within `limit`: the story cannot go on.
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
        let came = |ledger: &[Entry]| ledger.iter().any(|entry| entry.job == job && wanted(entry.event));
        let went = self.until(limit, came).await?;
        went.then_some(()).with_context(|| {
            format!("{} of {}: {job} has not {what} within {limit:?}", self.program, self.recipe)
        })
    }

    /// Waits until all jobs that were given are done; false if they are not within `limit`.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn until_done(&self, limit: Duration) -> Result<bool> {
        self.until(limit, |ledger| {
            let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.keys().all(|job| ledger.iter().any(|entry| entry.job == *job && entry.event == Event::Done))
        })
        .await
    }

    /// What its processes have written so far.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.ledger.read()
    }

    /// Where its jobs have their effect, for a part that the story plays itself.
    pub fn world(&self) -> World {
        let Jobs { takes, failures } = self.jobs.clone();
        World::new(self.ledger.clone(), takes, failures.into_iter().collect())
    }

    /// What became of its jobs, up to now. `waiting` is now if those that have not begun still wait.
    fn account(&self, waiting: Option<SystemTime>) -> Result<Account> {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let harmed = self.harmed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Account::of(&due, &self.ledger.read()?, &harmed, waiting))
    }
}
