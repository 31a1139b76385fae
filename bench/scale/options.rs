//! What can be set.

use std::path::PathBuf;

use clap::Parser;
use keylapse_bench::figure;
use keylapse_bench::scale::Goal;

/// Measures what timers cost on a server alone and on clusters of one, two and three primaries, and calculates what a
/// goal would take. Prints both as they stand in docs/scale.md.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
pub(crate) struct Options {
    /// How often each arrangement is measured.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// A fifth of the timers.
    #[arg(long)]
    pub(crate) quick: bool,
    /// So few that the figures mean nothing: whether it works.
    #[arg(long, conflicts_with = "quick")]
    pub(crate) tiny: bool,
    /// Where what was measured is kept.
    #[arg(long)]
    pub(crate) record: Option<PathBuf>,
    /// Measure nothing, and calculate from what was kept there.
    #[arg(long, conflicts_with = "record")]
    pub(crate) from: Option<PathBuf>,
    /// The goal: timers a second.
    #[arg(long, default_value_t = Goal::default().timers_per_s)]
    timers_per_s: f64,
    /// The goal: timers that are armed at a time.
    #[arg(long, default_value_t = Goal::default().armed)]
    armed: f64,
    /// GiB of timers that one primary may have.
    #[arg(long, default_value_t = Goal::default().gib_each)]
    gib_each: f64,
    /// The share of a processor that each may be busy for.
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

/// How much is measured, of what grows with the primaries: for each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Timers that are armed by tasks, for a day.
    pub(crate) armed: usize,
    /// Tasks that do so.
    pub(crate) tasks: usize,
    /// Timers that fire on time.
    pub(crate) timely: usize,
    /// How many of them each second.
    pub(crate) rate: usize,
    /// Timers that fire on time on all arrangements alike, in all.
    pub(crate) calm: usize,
    /// How many of them each second.
    pub(crate) calm_rate: usize,
    /// Keys that listeners hear of.
    pub(crate) heard: usize,
    /// Timers that are overdue before a listener starts.
    pub(crate) overdue: usize,
    /// Timers of the server that is to fork, in all.
    pub(crate) forked: usize,
    /// Seconds without work.
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
        heard: 50_000,
        overdue: 100_000,
        forked: 1_000_000,
        idle_s: 10,
    };

    fn divided(self, by: usize) -> Self {
        Self {
            armed: self.armed / by,
            timely: self.timely / by,
            calm: self.calm / by,
            heard: self.heard / by,
            overdue: self.overdue / by,
            forked: self.forked / by,
            ..self
        }
    }

    /// In words.
    pub(crate) fn said(&self, rounds: usize) -> String {
        let Self { armed, tasks, timely, rate, calm, calm_rate, heard, overdue, forked, idle_s } = self;
        let all = [armed, timely, rate, calm, calm_rate, heard, overdue, forked];
        let [armed, timely, rate, calm, calm_rate, heard, overdue, forked] =
            all.map(|number| figure(*number as f64));
        format!(
            "Rounds: {rounds}. The lower rate: {calm} timers at {calm_rate} a second, in all. For each primary, or the \
             server alone: {timely} timers at {rate} a second, the higher rate; {overdue} overdue; {armed} armed one by \
             one by {tasks} tasks; {heard} keys that listeners hear of. The server that forks has {forked} timers. Idle: \
             {idle_s} s"
        )
    }
}
