//! Bringing back what was exported.

use bytes::Bytes;

use crate::error::Result;
use crate::{PartitionNames, Store, scripts};

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Imported {
    /// It is there now.
    New,
    /// It was there already.
    There,
    /// The key has another timer, which was left alone.
    Taken,
    /// Its arming has ended within the last ten minutes: it stays ended.
    Ended,
}

/// A timer or a letter, as it stands in Redis.
#[derive(Clone, Debug)]
pub enum ImportEntry {
    /// A timer.
    Timer {
        /// Its key.
        key: Bytes,
        /// Its record.
        record: Bytes,
        /// Its state, if there is anything to say.
        state: Option<Bytes>,
        /// When it is due, in ms.
        due: u64,
    },
    /// A dead letter.
    Letter {
        /// Its name.
        name: Bytes,
        /// Its bytes.
        letter: Bytes,
        /// When it died, in ms.
        died: u64,
    },
}

impl Store {
    /// Installs entries of one partition, where nothing stands in their place. In a cluster trigger keys lie elsewhere,
    /// and are left out: the index fires without them.
    pub async fn import(
        &self,
        at: &PartitionNames,
        triggers: bool,
        entries: &[ImportEntry],
    ) -> Result<Vec<Imported>> {
        let codes = [Imported::New, Imported::There, Imported::Taken, Imported::Ended];
        let mut call = self.call(&scripts::IMPORT, at);
        call.arg(i32::from(triggers && !self.0.topology.are_many()));
        for entry in entries {
            match entry {
                ImportEntry::Timer { key, record, state, due } => {
                    call.arg("timer").arg(&key[..]).arg(&record[..]);
                    call.arg(state.as_deref().unwrap_or_default()).arg(due.to_string());
                }
                ImportEntry::Letter { name, letter, died } => {
                    call.arg("letter").arg(&name[..]).arg(&letter[..]).arg("").arg(died.to_string());
                }
            }
        }
        let mut reply = call.reply().await?;
        let imported = reply.list()?.codes(entries.len(), &codes)?;
        let said = reply.maybe_text()?.unwrap_or_default();
        let untold = said.lines().next().filter(|reason| !reason.is_empty());
        untold.into_iter().for_each(|reason| _ = self.untold(at, reason));
        Ok(imported)
    }
}
