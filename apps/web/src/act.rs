//! Actions on timers and topics. An action that has begun is completed even if its client disconnects, and is logged.
//!
//! A bulk action is counted first, and the client confirms the count. Counting and acting end in bounded time.

use std::time::Duration;

use futures::future::{Either, pending, select};
use keylapse::{Error, Result};
use keylapse_console::{
    Action, ActionResult, Bulk, BulkReport, Cursor, EntryState, Filter, TopicHandle, text,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::guard::{AuditRecord, Caller};
use crate::serve::ServerShutdown;
use crate::web::SharedState;

/// An action on a topic or on its entries, for the audit log.
pub(crate) struct AuditedAction {
    pub(crate) verb: &'static str,
    pub(crate) topic: TopicHandle,
    /// The key, filter or destination that the action is for, or the reason for a pause.
    pub(crate) what: String,
}

/// The result of an action, for the audit log.
pub(crate) trait AuditedOutcome: Send + 'static {
    /// Returns the outcome, and the number of entries that changed.
    fn audit_summary(&self) -> (String, u64);
}

impl AuditedOutcome for ActionResult {
    fn audit_summary(&self) -> (String, u64) {
        (self.outcome.to_owned(), u64::from(self.done))
    }
}

impl AuditedOutcome for BulkReport {
    fn audit_summary(&self) -> (String, u64) {
        (self.to_string(), self.done)
    }
}

impl AuditedAction {
    pub(crate) fn upon(verb: &'static str, topic: &TopicHandle, key: &[u8]) -> Self {
        Self { verb, topic: topic.clone(), what: text::escape(key) }
    }

    /// Makes an action that has listeners call a destination now.
    pub(crate) fn try_now(topic: &TopicHandle, destination: &str) -> Self {
        Self { verb: "try-now", topic: topic.clone(), what: destination.to_owned() }
    }

    /// Makes an action on all entries that match a filter.
    pub(crate) fn upon_many(action: Action, topic: &TopicHandle, state: EntryState, filter: &Filter) -> Self {
        let what = format!("{} {filter}", state.as_str()).trim_end().to_owned();
        Self { verb: action.as_str(), topic: topic.clone(), what }
    }

    /// Runs the action in a task of its own, which a disconnect of the client does not cancel, and logs its result.
    pub(crate) async fn take<T: AuditedOutcome>(
        self,
        shared: &SharedState,
        who: Caller,
        deed: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let place = shared.acts.clone().acquire_owned().await.expect("the semaphore is never closed");
        let task = tokio::spawn(async move {
            let _place = place;
            let done = deed.await;
            self.write_down(&who, &done);
            done
        });
        task.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Logs the action. A failed one is logged too, because Redis may have executed it without an answer.
    fn write_down(&self, who: &Caller, done: &Result<impl AuditedOutcome, Error>) {
        let (outcome, count) = match done {
            Ok(done) => done.audit_summary(),
            Err(error) => (format!("failed: {:?}", error.kind()), 0),
        };
        let Self { verb, topic, what } = self;
        who.log_action(AuditRecord { verb, topic: topic.name(), what, outcome: &outcome, count });
    }
}

/// Maximum entries of one bulk request. More would take longer than a client waits for the answer.
pub(crate) const MAX_BULK_ENTRIES: u64 = 10_000;
/// Time limit of a bulk action. Together with the time for counting it is below the timeout of a request.
const ACTS: Duration = Duration::from_secs(25);

/// A bulk action, and the entries that it is for.
#[derive(Clone)]
pub(crate) struct BulkJob {
    pub(crate) topic: TopicHandle,
    pub(crate) action: Action,
    pub(crate) state: EntryState,
    pub(crate) filter: Filter,
    pub(crate) limit: u64,
    /// Maximum entries per second; 0 is no limit.
    pub(crate) rate: u32,
    /// The cursor at which an earlier request ended.
    pub(crate) after: Option<Cursor>,
}

/// The right to run one bulk action.
pub(crate) struct BulkPermit {
    _permit: OwnedSemaphorePermit,
}

impl BulkPermit {
    /// Returns `None` if too many bulk actions are running.
    pub(crate) fn take(shared: &SharedState) -> Option<Self> {
        let permit = shared.bulks.clone().try_acquire_owned();
        permit.ok().map(|_permit| Self { _permit })
    }
}

impl BulkJob {
    /// Counts the matching entries with a dry run, for at most `within`.
    pub(crate) async fn count(&self, within: Duration) -> Result<BulkReport> {
        self.bulk().dry_run(true).until(sleep(within)).run().await
    }

    /// Runs the action. It ends early after [`ACTS`], or when the server shuts down.
    pub(crate) async fn act(
        self,
        place: BulkPermit,
        shared: &SharedState,
        who: Caller,
        closing: Option<ServerShutdown>,
    ) -> Result<BulkReport> {
        if self.limit == 0 {
            return Ok(BulkReport::default());
        }
        let act = AuditedAction::upon_many(self.action, &self.topic, self.state, &self.filter);
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

async fn ends(closing: Option<ServerShutdown>) {
    let closes = match closing {
        Some(closing) => Either::Left(closing.begins()),
        None => Either::Right(pending()),
    };
    let time = sleep(ACTS);
    tokio::pin!(closes, time);
    select(closes, time).await;
}
