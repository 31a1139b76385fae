//! Whether what a topic keeps agrees with itself.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::error::Result;
use crate::wire::{Listing, PartitionNames};
use crate::{KnownTopic, text};

/// Names that are looked at in one step.
const PAGE: usize = 500;
/// Faults that are named.
const NAMED: usize = 100;
/// Between two looks at what seems amiss: it may have been on its way.
const AGAIN: Duration = Duration::from_millis(50);

/// What was looked at, and what is amiss.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Verified {
    /// Index entries, records, states and letters that were looked at.
    pub looked_at: u64,
    /// How many faults there are of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The first hundred of them.
    pub named: Vec<Fault>,
}

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The partition.
    pub partition: u32,
    /// What: `index_without_record`, `record_without_index`, `state_without_record`, `kept_without_timer`,
    /// `letter_without_bytes` or `bytes_without_letter`.
    pub what: &'static str,
    /// The key; of a letter its name.
    #[serde(with = "text::serde_bytes")]
    pub key: Bytes,
}

impl Verified {
    /// Whether nothing is amiss.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// What is gone through, where each of it has to be as well, and what it is called where it is not.
const CHECKS: [(Listing, &[&str], &str); 7] = [
    (Listing::Due, &["rec"], "index_without_record"),
    (Listing::Quarantine, &["rec"], "index_without_record"),
    (Listing::Records, &["due", "quarantine"], "record_without_index"),
    (Listing::States, &["rec"], "state_without_record"),
    (Listing::Next, &["rec"], "kept_without_timer"),
    (Listing::Dead, &["letters"], "letter_without_bytes"),
    (Listing::Letters, &["dead"], "bytes_without_letter"),
];

impl KnownTopic {
    /// Goes through all that the topic keeps, at most 500 names in a step, and looks whether index and records agree.
    /// Nothing is written: the slow repair of listeners puts right what is amiss.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn verify(&self, mut progress: impl FnMut(u64)) -> Result<Verified> {
        let mut verified = Verified::default();
        for at in self.parts() {
            for (listing, elsewhere, what) in CHECKS {
                let mut cursor = 0;
                loop {
                    let (next, names) = self.names(at, listing, cursor).await?;
                    verified.looked_at += names.len() as u64;
                    for key in self.amiss(at, listing, elsewhere, names).await? {
                        verified.add(Fault { partition: at.index, what, key });
                    }
                    progress(verified.looked_at);
                    if next == 0 {
                        break;
                    }
                    cursor = next;
                }
            }
        }
        Ok(verified)
    }

    async fn names(&self, at: &PartitionNames, listing: Listing, cursor: u64) -> Result<(u64, Vec<Bytes>)> {
        let store = self.console.store();
        self.console.persist(|_| store.names_in(at, listing, cursor, PAGE)).await
    }

    /// Which of these names are not elsewhere, and still here: both twice, as a timer may end between two looks.
    async fn amiss(
        &self,
        at: &PartitionNames,
        listing: Listing,
        elsewhere: &[&str],
        mut names: Vec<Bytes>,
    ) -> Result<Vec<Bytes>> {
        for look in 0..2 {
            if names.is_empty() {
                break;
            }
            if look > 0 {
                tokio::time::sleep(AGAIN).await;
            }
            let missing = self.lacking(at, elsewhere, &names).await?;
            let gone = self.lacking(at, &[listing.as_str()], &missing).await?;
            names = missing.into_iter().filter(|name| !gone.contains(name)).collect();
        }
        Ok(names)
    }

    async fn lacking(&self, at: &PartitionNames, places: &[&str], names: &[Bytes]) -> Result<Vec<Bytes>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.console.store().holds(at, places, names).await?;
        Ok(names.iter().zip(found).filter(|(_, found)| !found).map(|(name, _)| name.clone()).collect())
    }
}

impl Verified {
    fn add(&mut self, fault: Fault) {
        *self.faults.entry(fault.what).or_default() += 1;
        if self.named.len() < NAMED {
            self.named.push(fault);
        }
    }
}
