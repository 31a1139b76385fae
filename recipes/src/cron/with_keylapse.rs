//! A backup every night at two, in a time zone. Each run is a timer of its own, and arms the next one
//! before it does anything: a run that fails and is retried holds up no other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use croner::Cron;
use jiff::{Timestamp, tz::TimeZone};
use keylapse::{Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// When the job runs.
#[derive(Clone, Debug)]
pub struct Plan {
    cron: Cron,
    zone: TimeZone,
    /// What was missed by more than this, because no listener ran, is skipped; else it runs once, late.
    pub skip_after: Duration,
}

impl Plan {
    /// Refuses what is no cron expression or never comes true, and a zone that does not exist.
    pub fn new(cron: &str, zone: &str, skip_after: Duration) -> anyhow::Result<Self> {
        let zone = TimeZone::get(zone).with_context(|| format!("there is no time zone {zone:?}"))?;
        let parsed = cron.parse().with_context(|| format!("{cron:?} is no cron expression"))?;
        let plan = Self { cron: parsed, zone, skip_after };
        plan.next(SystemTime::now()).with_context(|| format!("{cron:?} never comes true"))?;
        Ok(plan)
    }

    /// The first time after this one. What a clock change leaves out moves behind it; what it repeats runs once.
    pub fn next(&self, after: SystemTime) -> anyhow::Result<SystemTime> {
        let after = Timestamp::try_from(after)?.to_zoned(self.zone.clone());
        Ok(self.cron.find_next_occurrence(&after, false)?.timestamp().into())
    }
}

/// One key for each run: `cron:backup:1774746000`, in seconds since 1970.
pub fn runs() -> keylapse::Result<Topic<()>> {
    Topic::new("cron:{job}:{at}")
}

/// Arms the next run. Every program may do this when it starts: the key is the same, so that there is one run.
pub async fn arm_next(schedule: &Schedule, plan: &Plan, after: SystemTime) -> anyhow::Result<()> {
    let next = plan.next(after)?;
    let at = next.duration_since(UNIX_EPOCH)?.as_secs().to_string();
    let _armed = schedule.arm(&runs()?, ["backup", &at], next, &()).only_if_absent().await?;
    Ok(())
}

/// A run. An error is retried by the topic's policy, and the next night's run is armed all the same.
pub async fn run(
    lapse: Lapse<()>,
    (schedule, plan, world): (Schedule, Plan, World),
) -> anyhow::Result<Outcome> {
    arm_next(&schedule, &plan, lapse.deadline() + lapse.lateness()).await?;
    if lapse.attempt() == 1 && lapse.lateness() > plan.skip_after {
        return Ok(Outcome::Drop);
    }
    world.act(lapse.capture("at").unwrap_or_default(), &lapse.id()).await?;
    Ok(Outcome::Done)
}

/// Runs the job by its plan, for ever.
pub async fn follow(plan: Plan, url: &str, world: World) -> anyhow::Result<()> {
    let schedule = Schedule::connect(url).await?;
    arm_next(&schedule, &plan, SystemTime::now()).await?;
    let listener = Listener::builder(url).state((schedule, plan, world)).on(runs()?, run).build()?;
    Ok(listener.run_until(shutdown_signal()).await?)
}
