//! What a program does to timers: the same calls, made by the same tasks, of keylapse and of what it is compared with.

use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Fault;

/// From how many tasks timers are armed at the same time.
pub(crate) const TASKS: usize = 32;
/// When what is armed is due, so that nothing of it is while it is measured; and when what is moved then is.
pub(crate) const LATER: Duration = Duration::from_secs(3600);
pub(crate) const MUCH_LATER: Duration = Duration::from_secs(7200);

/// What is done to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Armed where none was.
    Arm,
    /// Armed where one was.
    Over,
    /// Moved to another time.
    Reschedule,
    /// Withdrawn.
    Cancel,
}

/// A system that arms timers, as its users call it. An act is an error if it did something else than it says.
pub(crate) trait Producer: Clone + Send + Sync + 'static {
    /// Does this to a timer.
    fn act(&self, act: Act, number: usize) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Arms these in its bulk call.
    fn arm_many(&self, numbers: Range<usize>) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// One after the other.
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

/// From all tasks, each with its share of the timers; of one timer, one act after the other.
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

/// How many a second this does.
pub(crate) async fn per_s(
    count: usize,
    doing: impl Future<Output = Result<(), Fault>>,
) -> Result<f64, Fault> {
    let started = Instant::now();
    doing.await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
