//! Another number of partitions for a topic.
//!
//! The old and the new partitions share their names as far as both numbers go, so that the work is done in place: of
//! each partition everything stays whose place it is with the new number, too, and the rest is moved. All old ones are
//! paused, so that nothing is claimed, until no attempt runs; all are closed, 0 first; then things are moved, page by
//! page; then all are opened with the new number, 0 last. A partition that is not needed any more stays behind, empty,
//! and says to late callers how many there are.
//!
//! `meta` of partition 0 says from the first moment to the last what is going on, and under which id. A call that
//! finds it closed goes on with that. The order was tried out in `tests/protocol/src/repartitioning.rs`, with everybody
//! dying everywhere.

mod carrier;
mod mover;

use std::future::IntoFuture;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use keylapse::Topic;
use keylapse::inside::{TopicConfig, TopicInside as _};

use self::mover::Mover;
use crate::Console;
use crate::error::{Error, Result};
use crate::time::MAX_DELAY;
use crate::wire::MAX_PARTITIONS;

/// For how long attempts that run are waited for, unless set otherwise.
const WAIT: Duration = Duration::from_secs(120);

/// Another number of partitions, about to be given: set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is moved until the request is awaited"]
pub struct RepartitionRequest<'a> {
    console: &'a Console,
    config: &'a TopicConfig,
    to: u32,
    wait: Duration,
}

/// What it took to give a topic another number of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repartitioned {
    /// How many partitions the topic had. The number that was asked for, where it had that already.
    pub from: u32,
    /// How many it has now.
    pub to: u32,
    /// Timers that this call has moved to another partition.
    pub timers: u64,
    /// Dead letters that it has moved.
    pub dead_letters: u64,
    /// How long nothing was given out, but could be armed, until no attempt ran any more.
    pub waited: Duration,
    /// How long nothing could be armed, from when the first partition was closed, by whichever call, until the last
    /// was opened.
    pub closed_for: Duration,
}

impl Console {
    /// Gives a managed topic another number of partitions, with all that it holds: timers and what is known of their
    /// attempts, armings that are kept behind others, dead letters under their ids, what repeats of calls look for, and
    /// why it is paused, if it is. The number in the `topic` that is given does not matter.
    ///
    /// First no more timers are given out, and the attempts that run are waited for, up to
    /// [`wait`](RepartitionRequest::wait). Arms go on meanwhile. Then the topic is closed: producers of either number
    /// are refused with [`Repartitioning`](keylapse::ErrorKind::Repartitioning), which they wait out for as long as the
    /// client's [`patience`](keylapse::Client::patience) allows. What has to go elsewhere is moved in calls of at most 500
    /// timers and about a megabyte, between which the server serves others. In the end whoever says the old number is
    /// refused with [`Partitions`](keylapse::ErrorKind::Partitions), and has to be started again with the new one. A
    /// listener with the new number can be started before: it waits.
    ///
    /// Where this is interrupted, another call with the same number goes on, from this or any other program. One with
    /// another number is refused until that is done. Calling it again does no harm.
    ///
    /// ```no_run
    /// # async fn grow(console: keylapse_console::Console) -> keylapse::Result<()> {
    /// let orders = keylapse::Topic::<u64>::new("order:unpaid:{id}")?;
    /// let done = console.repartition(&orders, 8).await?;
    /// println!("{} timers moved, nothing could be armed for {:?}", done.timers, done.closed_for);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](keylapse::ErrorKind::Invalid) for an attached topic, for one that is not in Redis and for a number
    /// that no topic can have. [`InUse`](keylapse::ErrorKind::InUse) when attempts run for longer than is waited, or the
    /// topic is resumed meanwhile: then it is as before. `Repartitioning` when it is getting another number than this.
    /// After any other error call it again.
    pub fn repartition<'a, T>(&'a self, topic: &'a Topic<T>, partitions: u32) -> RepartitionRequest<'a> {
        RepartitionRequest { console: self, config: topic.config(), to: partitions, wait: WAIT }
    }
}

impl RepartitionRequest<'_> {
    /// For how long attempts that run are waited for. Default: 2 min.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit.min(MAX_DELAY); // what is added to a moment must not overflow it
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
        Mover::new(console, config, to).run(wait).await
    }
}

/// Of an attached topic Redis' own keys are the truth, and what we remember of them is not worth a move.
fn refused_attached(topic: &str, to: u32) -> Error {
    Error::invalid(format!(
        "topic {topic} is attached, and cannot be repartitioned: stop its listeners, call Console::detach, and \
         start them with `.partitions({to})`; they find its keys by a scan"
    ))
}

impl<'a> IntoFuture for RepartitionRequest<'a> {
    type Output = Result<Repartitioned>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
