//! Actions: each is seen through once it has begun, whoever still waits for its answer, and written down. One on all entries
//! that a filter lets pass is counted first, which somebody agrees to; both end in bounded time.

use std::time::Duration;

use futures::future::{Either, pending, select};
use keylapse::{Error, Result};
use keylapse_console::{Action, Bulk, BulkReport, Cursor, Done, EntryState, Filter, KnownTopic, text};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::guard::{Deed, Who};
use crate::serve::Closing;
use crate::web::Shared;

/// An action upon a topic, or upon something of it.
pub(crate) struct Act {
    pub(crate) verb: &'static str,
    pub(crate) topic: KnownTopic,
    /// Upon what, as it is shown: a key, or a filter.
    pub(crate) what: String,
}

/// What became of it, as it is written down.
pub(crate) trait Outcome: Send + 'static {
    /// In words, and to how many.
    fn noted(&self) -> (String, u64);
}

impl Outcome for Done {
    fn noted(&self) -> (String, u64) {
        (self.outcome.to_owned(), u64::from(self.was_done))
    }
}

impl Outcome for BulkReport {
    fn noted(&self) -> (String, u64) {
        (self.to_string(), self.done)
    }
}

impl Act {
    pub(crate) fn upon(verb: &'static str, topic: &KnownTopic, key: &[u8]) -> Self {
        Self { verb, topic: topic.clone(), what: text::escape(key) }
    }

    /// Upon a host that holds work back.
    pub(crate) fn try_now(topic: &KnownTopic, destination: &str) -> Self {
        Self { verb: "try-now", topic: topic.clone(), what: destination.to_owned() }
    }

    /// Upon all that a filter lets pass.
    pub(crate) fn upon_many(action: Action, topic: &KnownTopic, state: EntryState, filter: &Filter) -> Self {
        let what = format!("{} {filter}", state.as_str()).trim_end().to_owned();
        Self { verb: action.as_str(), topic: topic.clone(), what }
    }

    /// Does it, in a task of its own.
    pub(crate) async fn take<T: Outcome>(
        self,
        shared: &Shared,
        who: Who,
        deed: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let place = shared.acts.clone().acquire_owned().await.expect("nobody closes it");
        let task = tokio::spawn(async move {
            let _place = place;
            let done = deed.await;
            self.write_down(&who, &done);
            done
        });
        task.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// An action without an answer may have been done all the same, and is written down as well.
    fn write_down(&self, who: &Who, done: &Result<impl Outcome, Error>) {
        let (outcome, count) = match done {
            Ok(done) => done.noted(),
            Err(error) => (format!("failed: {:?}", error.kind()), 0),
        };
        let Self { verb, topic, what } = self;
        who.did(Deed { verb, topic: topic.name(), what, outcome: &outcome, count });
    }
}

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
