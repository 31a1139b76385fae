//! One action on all entries that a filter lets pass: what matches is counted, which somebody agrees to, and is then acted
//! upon. Both end in bounded time.

use std::time::Duration;

use futures::future::{Either, pending, select};
use keylapse::Result;
use keylapse_console::{Action, Bulk, BulkReport, Cursor, EntryState, Filter, KnownTopic};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::act::Act;
use crate::guard::Who;
use crate::serve::Closing;
use crate::web::Shared;

/// Entries that one request acts upon, at most: more take longer than somebody waits for an answer.
pub(crate) const MOST: u64 = 10_000;
/// How long it acts. With its counting this is shorter than a request may take.
const ACTS: Duration = Duration::from_secs(25);

/// What is to be done, and to which entries.
#[derive(Clone)]
pub(crate) struct Many {
    pub(crate) topic: KnownTopic,
    pub(crate) action: Action,
    pub(crate) state: EntryState,
    pub(crate) filter: Filter,
    pub(crate) limit: u64,
    /// No more than so many a second, if not 0.
    pub(crate) rate: u32,
    /// Where another has ended.
    pub(crate) after: Option<Cursor>,
}

/// The right to act upon many.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// None where enough others do.
    pub(crate) fn take(shared: &Shared) -> Option<Self> {
        let permit = shared.bulks.clone().try_acquire_owned();
        permit.ok().map(|_permit| Self { _permit })
    }
}

impl Many {
    /// How many match, by the way that they are acted upon, but for the last step.
    pub(crate) async fn count(&self, within: Duration) -> Result<BulkReport> {
        self.bulk().dry_run(true).until(sleep(within)).run().await
    }

    /// Ends early where it takes too long, or the server is to end.
    pub(crate) async fn act(
        self,
        place: Place,
        shared: &Shared,
        who: Who,
        closing: Option<Closing>,
    ) -> Result<BulkReport> {
        if self.limit == 0 {
            return Ok(BulkReport::default());
        }
        let act = Act::upon_many(self.action, &self.topic, self.state, &self.filter);
        let deed = async move {
            let _place = place;
            self.bulk().rate(self.rate).until(ends(closing)).run().await
        };
        act.take(shared, who, deed).await
    }

    fn bulk(&self) -> Bulk<'_> {
        let bulk = self.topic.bulk(self.action, self.state, self.filter.clone());
        bulk.limit(self.limit).after(self.after.clone())
    }
}

async fn ends(closing: Option<Closing>) {
    let closes = match closing {
        Some(closing) => Either::Left(closing.begins()),
        None => Either::Right(pending()),
    };
    let time = sleep(ACTS);
    tokio::pin!(closes, time);
    select(closes, time).await;
}
