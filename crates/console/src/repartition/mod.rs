//! Changes the number of partitions of a topic.
//!
//! Old and new partitions with the same index share their names, so the change is made in place. An entry moves only if
//! the new number assigns it to another partition. The steps are:
//!
//! 1. All old partitions are paused, so that nothing is claimed, until no attempt runs.
//! 2. All partitions are closed, partition 0 first.
//! 3. Entries are moved, page by page.
//! 4. All partitions are opened with the new number, partition 0 last.
//!
//! A partition that is no longer needed stays, empty, and its `meta` shows late callers the new number. From the first step
//! to the last, the `meta` of partition 0 shows the change and its ID. A call that finds partition 0 closed continues that
//! change. The model in `tests/protocol/src/repartitioning.rs` checks the order, with crashes at every step.

mod partition_mover;
mod repartitioner;

use std::future::IntoFuture;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use keylapse::Topic;
use keylapse::inside::{TopicConfig, TopicInside as _};

use self::repartitioner::Repartitioner;
use crate::Console;
use crate::error::{Error, Result};
use crate::time::MAX_DELAY;
use crate::wire::MAX_PARTITIONS;

/// The default time to wait for running attempts.
const WAIT: Duration = Duration::from_secs(120);

/// A request to change the number of partitions. Set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is moved until the request is awaited"]
pub struct RepartitionRequest<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    to: u32,
    wait: Duration,
}

/// The result of a change of the number of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repartitioned {
    /// The earlier number of partitions.
    pub from: u32,
    /// The present number of partitions.
    pub to: u32,
    /// Timers that this call has moved to another partition.
    pub timers: u64,
    /// Dead letters that this call has moved to another partition.
    pub dead_letters: u64,
    /// How long this call waited until no attempt ran. Timers could be armed in this time, but not claimed.
    pub waited: Duration,
    /// How long no timers could be armed: from the closing of the first partition to the opening of the last one. An earlier
    /// call may have closed the first partition.
    pub closed_for: Duration,
}

impl Console {
    /// Changes the number of partitions of a managed topic. Timers with their history, following armings, dead letters,
    /// tombstones and a pause are kept. The number in `topic` does not matter.
    ///
    /// First, listeners claim no more timers, and the call waits for running attempts, up to
    /// [`wait`](RepartitionRequest::wait). Timers can still be armed. Then the topic is closed, and producers get
    /// [`Repartitioning`](keylapse::ErrorKind::Repartitioning) once the client's [`retry_for`](keylapse::Client::retry_for)
    /// has passed. Entries are moved in calls of at most 500 timers and about 1 MiB, and the server answers other clients
    /// between them.
    ///
    /// Afterwards, programs with the old number get [`Partitions`](keylapse::ErrorKind::Partitions): start them again with
    /// the new number. A listener with the new number can start once the topic is closed, and waits then. Before, it ends
    /// with `Partitions`.
    ///
    /// If the call is interrupted, another call with the same number continues, from any program. A call with another number
    /// is refused until the first change is done. A repeated call does no harm.
    ///
    /// ```no_run
    /// # async fn grow(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let orders = keylapse::Topic::<u64>::new("order:unpaid:{id}")?;
    /// let done = console.repartition(&orders, 8).await?;
    /// println!("moved {} timers; arming was blocked for {:?}", done.timers, done.closed_for);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Invalid`](keylapse::ErrorKind::Invalid) if the topic is attached or not in Redis, or if the number is not
    ///   allowed;
    /// - [`InUse`](keylapse::ErrorKind::InUse) if attempts run for longer than `wait`, or if the topic is resumed during the
    ///   wait; nothing changes then;
    /// - [`Repartitioning`](keylapse::ErrorKind::Repartitioning) if the topic is being changed to another number.
    ///
    /// After any other error, call it again.
    pub fn repartition<'a, T>(&'a self, topic: &'a Topic<T>, partitions: u32) -> RepartitionRequest<'a> {
        RepartitionRequest { console: self, config: topic.config(), to: partitions, wait: WAIT }
    }
}

impl RepartitionRequest<'_> {
    /// Sets how long the call waits for running attempts. Default: 2 min.
    pub fn wait(mut self, limit: Duration) -> Self {
        // A longer time would overflow when it is added to an `Instant`.
        self.wait = limit.min(MAX_DELAY);
        self
    }

    async fn send(self) -> Result<Repartitioned> {
        let Self { console, config, to, wait } = self;
        config.check(console.namespace())?;
        if !(1..=MAX_PARTITIONS).contains(&to) {
            return Err(Error::invalid(format!("topic {}: partitions must be 1 to 1,024", config.name)));
        }
        if config.attach.is_some() {
            return Err(refused_attached(&config.name, to));
        }
        Repartitioner::new(console, config, to).run(wait).await
    }
}

/// Attached topics are refused, because a listener with the new number finds all keys again by a scan.
fn refused_attached(topic: &str, to: u32) -> Error {
    Error::invalid(format!(
        "topic {topic} is attached, and cannot be repartitioned: stop its listeners, call Console::detach, and \
         start the listeners with `.partitions({to})`; they find the keys by a scan"
    ))
}

impl<'a> IntoFuture for RepartitionRequest<'a> {
    type Output = Result<Repartitioned>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
