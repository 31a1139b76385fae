//! Actions: each is seen through once it has begun, whoever still waits for its answer, and written down.

use keylapse::Error;
use keylapse_console::{Action, BulkReport, Done, EntryState, Filter, KnownTopic, text};

use crate::guard::{Deed, Who};
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
