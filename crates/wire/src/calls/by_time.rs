//! Pages of an index that keeps times.

use bytes::Bytes;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::{PartitionNames, Store};

impl Store {
    /// Up to `count` members by time and then by their bytes, behind this place; and whether there may be more.
    pub(super) async fn by_time(
        &self,
        doing: &'static str,
        at: &PartitionNames,
        index: &str,
        behind: Option<(u64, &Bytes)>,
        count: usize,
        newest_first: bool,
    ) -> Result<(Vec<(u64, Bytes)>, bool)> {
        let key = at.key(index);
        let (mut from, mut passed) = (if newest_first { "+inf" } else { "-inf" }.to_owned(), 0);
        if let Some((time, _)) = behind {
            from = time.to_string();
            let mut same = pipe();
            same.cmd("ZCOUNT").arg(key).arg(&from).arg(&from);
            passed = self.ask(at, doing, &same).await?.int()?;
        }
        let limit = passed.saturating_add(count as u64).min(i64::MAX as u64);
        let mut range = pipe();
        match newest_first {
            true => range.cmd("ZRANGE").arg(key).arg(from).arg("-inf").arg("BYSCORE").arg("REV"),
            false => range.cmd("ZRANGEBYSCORE").arg(key).arg(from).arg("+inf"),
        };
        range.arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let found = self.ask(at, doing, &range).await?.list()?.each(|reply| {
            let member = reply.bytes()?;
            Ok((reply.int()?, member))
        })?;
        let is_cut_short = found.len() as u64 == limit;
        // Of those of the same millisecond, some were read before.
        let is_fresh = |(time, member): &(u64, Bytes)| {
            behind
                .is_none_or(|behind| ((*time, member) < behind) == newest_first && (*time, member) != behind)
        };
        let mut fresh: Vec<_> = found.into_iter().filter(is_fresh).collect();
        let more = is_cut_short || fresh.len() > count;
        fresh.truncate(count);
        Ok((fresh, more))
    }
}
