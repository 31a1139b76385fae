//! Actions: each is seen through once it has begun, whoever still waits for its answer, and written down.

use keylapse::Error;
use keylapse_console::{Became, EntryState, Filter, KnownTopic, text};

use crate::guard::{Deed, Who};
use crate::verb::Verb;
use crate::web::Shared;

/// An action upon a topic, or upon something of it.
pub(crate) struct Act {
    pub(crate) verb: &'static str,
    pub(crate) topic: KnownTopic,
    /// Upon what, as it is shown: a key, or a filter.
    pub(crate) what: String,
}

/// What became of it.
pub(crate) struct Did<T> {
    pub(crate) outcome: String,
    pub(crate) count: u64,
    pub(crate) found: T,
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
    pub(crate) fn upon_many(verb: Verb, topic: &KnownTopic, state: EntryState, filter: &Filter) -> Self {
        let what = format!("{} {filter}", state.as_str()).trim_end().to_owned();
        Self { verb: verb.word(), topic: topic.clone(), what }
    }

    /// Does it, in a task of its own.
    pub(crate) async fn take<T: Send + 'static>(
        self,
        shared: &Shared,
        who: Who,
        deed: impl Future<Output = Result<Did<T>, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let place = shared.acts.clone().acquire_owned().await.expect("nobody closes it");
        let task = tokio::spawn(async move {
            let _place = place;
            let done = deed.await;
            self.write_down(&who, &done);
            done.map(|did| did.found)
        });
        task.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// An action without an answer may have been done all the same, and is written down as well.
    fn write_down<T>(&self, who: &Who, done: &Result<Did<T>, Error>) {
        let failed;
        let (outcome, count) = match done {
            Ok(did) => (did.outcome.as_str(), did.count),
            Err(error) => {
                failed = format!("failed: {:?}", error.kind());
                (failed.as_str(), 0)
            }
        };
        let Self { verb, topic, what } = self;
        who.did(Deed { verb, topic: topic.name(), what, outcome, count });
    }
}

impl<T> Did<T> {
    /// To one thing.
    pub(crate) fn one(became: Became, found: T) -> Self {
        Self { outcome: became.code.to_owned(), count: u64::from(became.was_done), found }
    }
}
