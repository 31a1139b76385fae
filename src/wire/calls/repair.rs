//! The slow repair.

use crate::error::Result;
use crate::wire::names::PartitionNames;
use crate::wire::scripts;
use crate::wire::store::Store;

/// One step of the slow repair.
#[derive(Clone, Debug)]
pub struct RepairStep {
    /// What to scan.
    pub what: Scan,
    /// Where the last step ended; 0 to begin.
    pub cursor: u64,
    /// How many entries to look at, roughly.
    pub count: usize,
    /// The lease that a held record without an index entry gets, in ms.
    pub lease_ms: u64,
}

/// The hashes that the slow repair scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Records without an index entry.
    Records,
    /// States without a record.
    States,
    /// Kept armings without a timer before them.
    Next,
    /// Claim slots of listeners that are gone.
    Slots,
}

impl Scan {
    /// The name of the hash.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "rec",
            Self::States => "run",
            Self::Next => "next",
            Self::Slots => "slots",
        }
    }
}

/// What one step of the slow repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Where to go on; 0 at the end.
    pub cursor: u64,
    /// How many entries were put right.
    pub repaired: u64,
}

impl Store {
    /// Takes one step of the slow repair.
    pub async fn repair(&self, at: &PartitionNames, step: RepairStep) -> Result<Repaired> {
        let mut command = self.partition_script(&scripts::REPAIR, at);
        command.arg(step.what.as_str()).arg(step.cursor).arg(step.count).arg(step.lease_ms);
        let mut reply = self.run_at(&scripts::REPAIR, at, &command).await?;
        Ok(Repaired { cursor: reply.int()?, repaired: reply.int()? })
    }
}
