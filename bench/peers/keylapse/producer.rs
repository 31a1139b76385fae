//! The calls of programs that arm timers, made by equal tasks for keylapse and for the systems that it is compared with.

use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Fault;

/// Tasks that arm timers at the same time.
pub(crate) const TASKS: usize = 32;
/// The delays of armed and of moved timers, so long that none fires during a measurement.
pub(crate) const LATER: Duration = Duration::from_secs(3600);
pub(crate) const MUCH_LATER: Duration = Duration::from_secs(7200);

/// An act on a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Arms a new timer.
    Arm,
    /// Arms a timer that exists.
    Over,
    /// Moves a timer to another time.
    Reschedule,
    /// Cancels a timer.
    Cancel,
}

/// A system that arms timers, as its users call it.
pub(crate) trait Producer: Clone + Send + Sync + 'static {
    /// Does an act on a timer. Fails if the call had another effect.
    fn act(&self, act: Act, number: usize) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Arms timers with its bulk call.
    fn arm_many(&self, numbers: Range<usize>) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// Does the acts on one timer after the other.
pub(crate) async fn one_by_one(
    producer: &impl Producer,
    acts: &[Act],
    numbers: impl Iterator<Item = usize> + Send,
) -> Result<(), Fault> {
    for number in numbers {
        for act in acts {
            producer.act(*act, number).await?;
        }
    }
    Ok(())
}

/// Does the acts from all tasks, each with its share of the timers. Acts on one timer follow each other.
pub(crate) async fn from_tasks(
    producer: &impl Producer,
    acts: &'static [Act],
    numbers: Range<usize>,
) -> Result<(), Fault> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (producer, mine) = (producer.clone(), numbers.clone().skip(task).step_by(TASKS));
        tasks.spawn(async move { one_by_one(&producer, acts, mine).await });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

/// Runs a future that handles `count` timers, and returns their rate a second.
pub(crate) async fn per_s(
    count: usize,
    doing: impl Future<Output = Result<(), Fault>>,
) -> Result<f64, Fault> {
    let started = Instant::now();
    doing.await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
