//! A backup every night at two, in a time zone. Each run has its own timer, so a failed run that is retried does not
//! delay the next one. Another timer arms the runs, slot by slot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use croner::Cron;
use jiff::{Timestamp, tz::TimeZone};
use keylapse::{Done, Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};

use crate::stage::World;

/// The schedule of the job.
#[derive(Clone, Debug)]
pub struct Plan {
    cron: Cron,
    zone: TimeZone,
    /// A run that begins later than this, because no listener ran, is skipped.
    pub skip_after: Duration,
}

impl Plan {
    /// Fails if the zone is unknown, or if the cron expression is invalid or never matches.
    pub fn new(cron: &str, zone: &str, skip_after: Duration) -> anyhow::Result<Self> {
        let zone = TimeZone::get(zone).with_context(|| format!("unknown time zone {zone:?}"))?;
        let parsed = cron.parse().with_context(|| format!("invalid cron expression {cron:?}"))?;
        let plan = Self { cron: parsed, zone, skip_after };
        plan.next(SystemTime::now()).with_context(|| format!("cron expression {cron:?} never matches"))?;
        Ok(plan)
    }

    /// Returns the next time. A time that the clocks skip moves to the end of the gap; a repeated one counts once.
    pub fn next(&self, after: SystemTime) -> anyhow::Result<SystemTime> {
        let after = Timestamp::try_from(after)?.to_zoned(self.zone.clone());
        Ok(self.cron.find_next_occurrence(&after, false)?.timestamp().into())
    }
}

/// The state of both handlers.
pub type State = (Schedule, Plan, World);

/// Returns the topic of runs. Each has a key such as `cron:backup:1774746000`, in seconds since 1970.
pub fn runs() -> keylapse::Result<Topic<()>> {
    Topic::new("cron:{job}:{at}")
}

/// Returns the topic of slots, with one key for each job. The payload is the last armed slot.
pub fn slots() -> keylapse::Result<Topic<SystemTime>> {
    Ok(Topic::new("slot:{job}")?.max_attempts(u32::MAX).lease(Duration::from_secs(3)))
}

/// Starts the job. Every program calls this when it starts; only the first call arms a timer.
pub async fn begin(schedule: &Schedule) -> keylapse::Result<()> {
    schedule.arm(&slots()?, "backup", Duration::ZERO, &UNIX_EPOCH).only_if_absent().await.map(drop)
}

/// Arms the run of the next slot, and its own key for that time. The next slot follows from the last slot and the
/// clock of Redis, so a program whose clock is slow repeats no slot. Missed slots are skipped.
pub async fn arm_next(lapse: Lapse<SystemTime>, (schedule, plan, _): State) -> anyhow::Result<Done> {
    let next = plan.next((*lapse.payload()).max(lapse.deadline() + lapse.lateness()))?;
    let at = next.duration_since(UNIX_EPOCH)?.as_secs().to_string();
    let _run = schedule.arm(&runs()?, ["backup", &at], next, &()).only_if_absent().await?;
    let _armed = schedule.arm(&slots()?, "backup", next, &next).await?;
    Ok(Done)
}

/// Runs the job. An error is retried, and the run of the next night does not wait. The ID for the job is its slot.
pub async fn run(lapse: Lapse<()>, (_, plan, world): State) -> anyhow::Result<Outcome> {
    if lapse.attempt() == 1 && lapse.lateness() > plan.skip_after {
        return Ok(Outcome::Drop);
    }
    let slot = lapse.capture("at").unwrap_or_default();
    world.act(slot, &format!("backup:{slot}")).await?;
    Ok(Outcome::Done)
}

/// Runs the job by its plan until SIGTERM or Ctrl-C.
pub async fn follow(plan: Plan, url: &str, world: World) -> anyhow::Result<()> {
    let schedule = Schedule::connect(url).await?;
    begin(&schedule).await?;
    let listener =
        Listener::builder(url).state((schedule, plan, world)).on(slots()?, arm_next).on(runs()?, run);
    Ok(listener.build()?.run_until(shutdown_signal()).await?)
}
