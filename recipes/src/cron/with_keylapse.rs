//! A backup every night at two, in a time zone. Each run is a timer of its own, so that one that fails and is
//! retried holds up no other. Another timer arms them, slot by slot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use croner::Cron;
use jiff::{Timestamp, tz::TimeZone};
use keylapse::{Done, Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// When the job runs.
#[derive(Clone, Debug)]
pub struct Plan {
    cron: Cron,
    zone: TimeZone,
    /// A run that is late by more than this, because no listener ran, is skipped.
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

    /// The first time after this one. A time that clocks skip moves behind it; one that they repeat runs once.
    pub fn next(&self, after: SystemTime) -> anyhow::Result<SystemTime> {
        let after = Timestamp::try_from(after)?.to_zoned(self.zone.clone());
        Ok(self.cron.find_next_occurrence(&after, false)?.timestamp().into())
    }
}

/// The state of both handlers.
pub type State = (Schedule, Plan, World);

/// One key for each run: `cron:backup:1774746000`, in seconds since 1970.
pub fn runs() -> keylapse::Result<Topic<()>> {
    Topic::new("cron:{job}:{at}")
}

/// The last slot that was armed, one key for each job: due with that slot, and never given up.
pub fn slots() -> keylapse::Result<Topic<SystemTime>> {
    Ok(Topic::new("slot:{job}")?.max_attempts(u32::MAX).lease(Duration::from_secs(3)))
}

/// Every program does this when it starts: the first begins with the next slot, and the others change nothing.
pub async fn begin(schedule: &Schedule) -> keylapse::Result<()> {
    schedule.arm(&slots()?, "backup", Duration::ZERO, &UNIX_EPOCH).only_if_absent().await.map(drop)
}

/// Arms the run of the next slot, and itself for then. It goes by the last slot and by Redis' time: the clocks of
/// programs differ, and one that is behind would run a slot again. Slots that were missed are left out.
pub async fn arm_next(lapse: Lapse<SystemTime>, (schedule, plan, _): State) -> anyhow::Result<Done> {
    let next = plan.next((*lapse.payload()).max(lapse.deadline() + lapse.lateness()))?;
    let at = next.duration_since(UNIX_EPOCH)?.as_secs().to_string();
    let _run = schedule.arm(&runs()?, ["backup", &at], next, &()).only_if_absent().await?;
    let _itself = schedule.arm(&slots()?, "backup", next, &next).await?;
    Ok(Done)
}

/// A run. The topic's policy retries an error, and the next night's run does not wait for it. The slot is its id.
pub async fn run(lapse: Lapse<()>, (_, plan, world): State) -> anyhow::Result<Outcome> {
    if lapse.attempt() == 1 && lapse.lateness() > plan.skip_after {
        return Ok(Outcome::Drop);
    }
    let slot = lapse.capture("at").unwrap_or_default();
    world.act(slot, &format!("backup:{slot}")).await?;
    Ok(Outcome::Done)
}

/// Runs the job by its plan, for ever.
pub async fn follow(plan: Plan, url: &str, world: World) -> anyhow::Result<()> {
    let schedule = Schedule::connect(url).await?;
    begin(&schedule).await?;
    let listener =
        Listener::builder(url).state((schedule, plan, world)).on(slots()?, arm_next).on(runs()?, run);
    Ok(listener.build()?.run_until(shutdown_signal()).await?)
}
