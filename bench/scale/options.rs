//! The options of the command line.

use std::path::PathBuf;

use clap::Parser;
use keylapse_bench::figure;
use keylapse_bench::scale::Goal;

/// Measures the costs of timers on a single server and on clusters of one, two and three primaries, and calculates what a
/// goal needs. Prints both as in docs/internals/benchmarks.md.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
pub(crate) struct Options {
    /// Measure each arrangement this many times.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Measure a fifth of the timers.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure few timers, only to check that the program works.
    #[arg(long, conflicts_with = "quick")]
    pub(crate) tiny: bool,
    /// Write the record to this file.
    #[arg(long)]
    pub(crate) record: Option<PathBuf>,
    /// Calculate from this record, and measure nothing.
    #[arg(long, conflicts_with = "record")]
    pub(crate) from: Option<PathBuf>,
    /// Set the goal in timers a second.
    #[arg(long, default_value_t = Goal::default().timers_per_s)]
    timers_per_s: f64,
    /// Set the goal in timers that are armed at a time.
    #[arg(long, default_value_t = Goal::default().armed)]
    armed: f64,
    /// Set the GiB of timers that one primary may have.
    #[arg(long, default_value_t = Goal::default().gib_each)]
    gib_each: f64,
    /// Set the share of a processor that each program may be busy for.
    #[arg(long, default_value_t = Goal::default().busy)]
    busy: f64,
}

impl Options {
    pub(crate) fn goal(&self) -> Goal {
        let Self { timers_per_s, armed, gib_each, busy, .. } = *self;
        Goal { timers_per_s, armed, gib_each, busy }
    }

    pub(crate) fn size(&self) -> Size {
        match (self.quick, self.tiny) {
            (true, _) => Size::LONG.divided(5),
            (_, true) => Size { idle_s: 1, ..Size::LONG.divided(500) },
            _ => Size::LONG,
        }
    }
}

/// The amounts that are measured, for each primary unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Timers that tasks arm, due in a day.
    pub(crate) armed: usize,
    /// Tasks that arm them.
    pub(crate) tasks: usize,
    /// Timers that fire on time.
    pub(crate) timely: usize,
    /// Their rate, in timers a second.
    pub(crate) rate: usize,
    /// Timers that fire on time at one rate on all arrangements, in total.
    pub(crate) calm: usize,
    /// Their rate, in timers a second.
    pub(crate) calm_rate: usize,
    /// Keys whose expiry listeners receive.
    pub(crate) expiring: usize,
    /// Timers that are overdue before a listener starts.
    pub(crate) overdue: usize,
    /// Timers of the server that is to fork, in total.
    pub(crate) forked: usize,
    /// Seconds of the idle run.
    pub(crate) idle_s: u64,
}

impl Size {
    const LONG: Self = Self {
        armed: 50_000,
        tasks: 32,
        timely: 25_000,
        rate: 5000,
        calm: 5000,
        calm_rate: 1000,
        expiring: 50_000,
        overdue: 100_000,
        forked: 1_000_000,
        idle_s: 10,
    };

    fn divided(self, by: usize) -> Self {
        Self {
            armed: self.armed / by,
            timely: self.timely / by,
            calm: self.calm / by,
            expiring: self.expiring / by,
            overdue: self.overdue / by,
            forked: self.forked / by,
            ..self
        }
    }

    /// Returns the amounts in words.
    pub(crate) fn in_words(&self, rounds: usize) -> String {
        let Self { armed, tasks, timely, rate, calm, calm_rate, expiring, overdue, forked, idle_s } = self;
        let all = [armed, timely, rate, calm, calm_rate, expiring, overdue, forked];
        let [armed, timely, rate, calm, calm_rate, expiring, overdue, forked] =
            all.map(|number| figure(*number as f64));
        format!(
            "Rounds: {rounds}. The lower rate: {calm} timers at {calm_rate} a second, in all. Each primary, or the \
             server alone, has {timely} timers at {rate} a second (the higher rate) and {overdue} overdue timers. It \
             also has {armed} timers armed one by one by {tasks} tasks, and {expiring} keys whose expiry listeners \
             receive. The server that forks has {forked} timers. Idle: {idle_s} s"
        )
    }
}
