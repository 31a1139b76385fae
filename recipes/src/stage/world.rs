//! The world outside Redis, where jobs have their effects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use super::ledger::{Event, Ledger};

/// Stands for the effects of jobs outside Redis: it closes an order, sends a mail or refunds a payment.
///
/// A story sets how long a job takes, and how often it fails. Both sides of a scene have the same settings.
#[derive(Clone, Debug)]
pub struct World {
    ledger: Ledger,
    takes: Duration,
    failures: Arc<BTreeMap<String, usize>>,
}

impl World {
    /// Creates a world that writes to `ledger`. Each job takes `takes`, and `failures` has the number of first runs
    /// that fail, by job.
    pub fn new(ledger: Ledger, takes: Duration, failures: BTreeMap<String, usize>) -> Self {
        Self { ledger, takes, failures: Arc::new(failures) }
    }

    /// Does a job. A real receiver would recognize repeats by `id`.
    ///
    /// # Errors
    /// If the story makes this run fail, or the ledger cannot be read or written.
    pub async fn act(&self, job: &str, id: &str) -> Result<()> {
        self.ledger.note(Event::Began, job, id)?;
        tokio::time::sleep(self.takes).await;
        if self.has_to_fail(job)? {
            self.ledger.note(Event::Failed, job, id)?;
            bail!("job {job} failed, as the story requires");
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
