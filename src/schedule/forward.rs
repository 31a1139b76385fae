//! Handing what is due to workers that read a list or a stream, in any language.

use std::time::Duration;

use bytes::Bytes;

use crate::error::Result;
use crate::schedule::Schedule;
use crate::time::ms_ceil;
use crate::wire::names::forwarded;
use crate::wire::{Forwarded, Forwarding};

/// For how long an id is remembered: longer than any attempt can be under way.
const REMEMBER: Duration = Duration::from_secs(86_400);

/// A hundred years: servers refuse times that do not fit their clock.
const LONGEST_MS: u64 = 100 * 366 * 86_400_000;

/// A list or a stream that workers read.
///
/// ```no_run
/// use keylapse::forward::{ForwardTo, Forwarded};
/// use keylapse::{Done, Failure, Lapse, Schedule};
///
/// async fn hand_on(order: Lapse<String>, schedule: Schedule) -> Result<Done, Failure> {
///     let jobs = ForwardTo::list("jobs").max_length(10_000);
///     match schedule.forward(&jobs, &order.id(), order.payload().clone()).await? {
///         Forwarded::Full => Err(Failure::retry("the workers are behind")),
///         _ => Ok(Done),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing by itself"]
pub struct ForwardTo {
    key: Bytes,
    is_stream: bool,
    pub(crate) max_length: u64,
    pub(crate) remember: Duration,
}

impl ForwardTo {
    /// A list: members come in at its left end, so that `BRPOP` and `BLMOVE … RIGHT …` take the oldest first.
    pub fn list(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), is_stream: false, max_length: 0, remember: REMEMBER }
    }

    /// A stream.
    pub fn stream(key: impl Into<Bytes>) -> Self {
        Self { is_stream: true, ..Self::list(key) }
    }

    /// How many it may have; while it has as many, nothing is put there. Default: 0, any number.
    pub fn max_length(self, members: u64) -> Self {
        Self { max_length: members, ..self }
    }

    /// For how long an id is remembered, so that it is put there once. It takes about a hundred bytes. Default: a day.
    pub fn remember_for(self, time: Duration) -> Self {
        Self { remember: time, ..self }
    }
}

impl Schedule {
    /// Puts something into a list or a stream that is not keylapse's, once for each `id`: that of a
    /// [lapse](crate::Lapse::id), which its attempts share. A list's member is `message`; a stream's entry has it in the
    /// field `message`, and the id in `id`.
    ///
    /// Workers get it at least once: it is put there twice if what remembers the id is lost, evicted for example.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses: the user needs the right to write the key. Of kind
    /// [`WrongType`](crate::ErrorKind::WrongType) if the key holds something else.
    pub async fn forward(&self, to: &ForwardTo, id: &str, message: impl Into<Bytes>) -> Result<Forwarded> {
        let memory = forwarded(&self.client.namespace, &to.key, id);
        let message = message.into();
        let what = Forwarding {
            into: &to.key,
            memory: &memory,
            is_stream: to.is_stream,
            max_length: to.max_length,
            remember_ms: ms_ceil(to.remember).clamp(1, LONGEST_MS),
            id: id.as_bytes(),
            message: &message,
        };
        self.persist(|_| self.client.store.forward(&what)).await
    }
}
