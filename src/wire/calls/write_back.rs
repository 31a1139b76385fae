//! Keys that are written back for their retries.

use redis::Value;

use crate::error::Result;
use crate::wire::names::PartitionNames;
use crate::wire::store::Store;
use crate::wire::{copy, scripts};

/// What becomes of a key that is to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBack {
    /// It stands.
    Written,
    /// Its writer has created it again, and it was left alone.
    Taken,
    /// Its deadline has passed.
    Past,
}

impl Store {
    /// Writes a key back, if the name is free. The copy is as touch.lua makes it.
    pub async fn write_back(&self, key: &[u8], deadline: u64, copy: &[u8]) -> Result<WrittenBack> {
        let mut command = self.script(&scripts::WRITE_BACK, [key].into_iter());
        let (kind, value) = copy.split_first().map_or((0, copy), |(kind, value)| (*kind, value));
        command.arg(deadline).arg(if kind == copy::DUMP { "dump" } else { "string" }).arg(value);
        Ok(match self.run_on(&self.0.node, &scripts::WRITE_BACK, &command).await? {
            Value::Int(1) => WrittenBack::Written,
            Value::Int(2) => WrittenBack::Past,
            _ => WrittenBack::Taken,
        })
    }

    /// A key was written back until this deadline, and has expired: its announcement is no lapse. Whether
    /// that is still to come.
    pub async fn returned(&self, at: &PartitionNames, key: &[u8], deadline: u64) -> Result<bool> {
        let mut command = self.history_script(&scripts::RETURNED, at, None, true);
        command.arg(key).arg(deadline);
        Ok(self.run_at(&scripts::RETURNED, at, &command).await?.int()? == 1)
    }
}
