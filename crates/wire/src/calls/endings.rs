//! Members of an index whose names end with a key.

use bytes::Bytes;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::escape::glob_ending;
use crate::{PartitionNames, Reply, Store};

/// Names that are gone through in a step, which takes the server less than a millisecond.
const STEP: usize = 500;

impl Store {
    /// Those behind `head` bytes of whose names nothing but this key stands, each with the whole part of its score; and
    /// whether all were gone through, which are no more than about so many.
    pub(super) async fn named_with(
        &self,
        doing: &'static str,
        at: &PartitionNames,
        (index, head): (&str, usize),
        key: &[u8],
        most: usize,
    ) -> Result<(Vec<(Bytes, u64)>, bool)> {
        let (pattern, mut found, mut cursor) = (glob_ending(key), Vec::new(), 0_u64);
        for _ in 0..most.div_ceil(STEP) {
            let mut scan = pipe();
            scan.cmd("ZSCAN").arg(at.key(index)).arg(cursor);
            scan.arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
            let mut page = self.ask(at, doing, &scan).await?.list()?;
            cursor = page.int()?;
            let members = page.list()?.each(|reply: &mut Reply| Ok((reply.bytes()?, reply.int()?)))?;
            found.extend(members.into_iter().filter(|(name, _)| name.get(head..) == Some(key)));
            if cursor == 0 {
                break;
            }
        }
        // What is added or goes meanwhile may be named twice.
        found.sort_unstable();
        found.dedup();
        Ok((found, cursor == 0))
    }
}
