//! What a run's processes do: this very program, told by its command line to be one of them.

mod listener;
mod producer;
mod steady;

use std::path::PathBuf;
use std::time::Duration;

use keylapse::Client;
use rustix::process::getppid;

use crate::job::ANSWERS_IN_A_LEASE;
use crate::ledger::Ledger;

pub use listener::listen;
pub use producer::{Produce, produce};
pub use steady::produce_steadily;

/// What every child is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Orders {
    /// Where the server is, or the proxy before it.
    #[arg(long)]
    pub url: String,
    /// The folder of the ledgers.
    #[arg(long)]
    pub folder: PathBuf,
    /// The topics' lease.
    #[arg(long)]
    pub lease_ms: u64,
    /// There are several servers: how many replicas a primary has. The topic is the one of such runs.
    #[arg(long)]
    pub replicas: Option<u32>,
}

impl Orders {
    /// The topics' lease.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// A client that makes a call again before the lease is over.
    pub fn client(&self) -> keylapse::Result<Client> {
        Client::new(&self.url)?.answer_within(self.lease() / ANSWERS_IN_A_LEASE)
    }
}

/// Notes whenever this process stood still, and ends it when whoever started it is gone.
fn watch_over(ledger: Ledger) {
    let parent = getppid();
    crate::stalls::note(ledger, move || {
        if getppid() != parent {
            std::process::exit(1);
        }
        true
    });
}

/// Completes when this process is asked to end (SIGTERM).
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate()).expect("a signal handler").recv().await;
}
