//! The attempts that run.
//!
//! In the index they stand among what waits, by the ends of their leases, so that finding them there could mean to go
//! through all that is due soon. Only what was claimed has a state, and most of these run: the states are gone through.

use bytes::Bytes;

use crate::KnownTopic;
use crate::cursor::Cursor;
use crate::entry::{Entry, EntryState};
use crate::error::Result;
use crate::listing::{LOOKED_AT, Page, Wanted};
use crate::time::{ServerTime, system_time};
use crate::wire::Listing;

/// States that one step goes through, roughly.
const STEP: usize = 250;

/// A page of them. Its entries are by time; pages have no order.
pub(super) async fn page(topic: &KnownTopic, wanted: &Wanted<'_>, after: Option<&Cursor>) -> Result<Page> {
    let (mut partition, mut cursor) = after.map_or((0, 0), place);
    let (mut entries, mut looked_at, mut now) = (Vec::new(), 0, ServerTime::default());
    while partition < topic.parts().len() && entries.len() < wanted.count && looked_at < LOOKED_AT {
        let at = &topic.parts()[partition];
        let store = topic.console.store();
        let step = |_| store.names_in(at, Listing::Running, cursor, STEP);
        let (next, names) = topic.console.persist(step).await?;
        looked_at += STEP;
        for (key, look) in names.iter().zip(store.looks(at, &names).await) {
            let Some(look) = look? else { continue };
            now = now.max(look.stamp);
            let entry = topic.entry_of(key, look, wanted.payload);
            entries.extend(Some(entry).filter(|entry| is_wanted(entry, wanted, now)));
        }
        (partition, cursor) = if next == 0 { (partition + 1, 0) } else { (partition, next) };
    }
    entries.sort_by(|a, b| a.at_ms.cmp(&b.at_ms).then_with(|| a.key.cmp(&b.key)));
    let next = (partition < topic.parts().len()).then(|| behind(partition, cursor));
    Ok(Page { now: system_time(now.ms()), entries, next, looked_at })
}

/// Those in quarantine run, too, and are listed there.
fn is_wanted(entry: &Entry, wanted: &Wanted<'_>, now: ServerTime) -> bool {
    entry.state == EntryState::Running && wanted.filter.passes(entry, now.ms())
}

/// The server's own cursor stands in the place of the time. It is below the size of a table, and so exact.
#[allow(clippy::cast_precision_loss)]
fn behind(partition: usize, cursor: u64) -> Cursor {
    Cursor {
        score: cursor as f64,
        partition: u32::try_from(partition).unwrap_or(u32::MAX),
        name: Bytes::new(),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // as above
fn place(cursor: &Cursor) -> (usize, u64) {
    (cursor.partition as usize, cursor.score as u64)
}
