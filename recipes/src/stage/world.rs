//! The world outside Redis, in which a job has its effect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use super::ledger::{Event, Ledger};

/// What a job does outside Redis: close an order, send a mail, pay back a red packet.
///
/// It takes as long, and fails as often, as the story wants. Both sides of a recipe have the same one.
#[derive(Clone, Debug)]
pub struct World {
    ledger: Ledger,
    takes: Duration,
    failures: Arc<BTreeMap<String, usize>>,
}

impl World {
    /// A world that writes into `ledger`; a job takes this long, and some fail so many times.
    pub fn new(ledger: Ledger, takes: Duration, failures: BTreeMap<String, usize>) -> Self {
        Self { ledger, takes, failures: Arc::new(failures) }
    }

    /// Does a job. `id` is what the other end would tell a repeat by.
    ///
    /// # Errors
    /// When the story wants this job to fail now.
    pub async fn act(&self, job: &str, id: &str) -> Result<()> {
        self.ledger.note(Event::Began, job, id)?;
        tokio::time::sleep(self.takes).await;
        if self.has_to_fail(job)? {
            self.ledger.note(Event::Failed, job, id)?;
            bail!("job {job} failed, as the story wants it");
        }
        self.ledger.note(Event::Done, job, id)
    }

    fn has_to_fail(&self, job: &str) -> Result<bool> {
        let Some(times) = self.failures.get(job) else { return Ok(false) };
        let failed = self
            .ledger
            .read()?
            .iter()
            .filter(|entry| entry.job == job && entry.event == Event::Failed)
            .count();
        Ok(failed < *times)
    }
}
