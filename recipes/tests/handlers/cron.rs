use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use keylapse_testing::{RunningListener, TestBed};
use recipes::cron::with_keylapse::{Plan, arm_next, begin, run, runs, slots};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

const HOUR: Duration = Duration::from_secs(3600);

fn time(text: &str) -> SystemTime {
    text.parse::<Timestamp>().expect("a time").into()
}

/// Returns the next three runs after `start`, as times in UTC.
fn nights(cron: &str, zone: &str, start: &str) -> Vec<String> {
    let plan = Plan::new(cron, zone, HOUR).expect("a plan");
    let mut last = time(start);
    let mut next = || {
        last = plan.next(last).expect("a next time");
        Timestamp::try_from(last).expect("a time").to_string()
    };
    vec![next(), next(), next()]
}

#[test]
fn nights_follow_the_calendar_over_clock_changes_and_leap_days() {
    let rows = [
        // In Berlin, 02:00 does not exist on 29 March, and exists twice on 25 October.
        (
            "0 2 * * *",
            "2026-03-27T23:00:00Z",
            ["2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"],
        ),
        (
            "0 2 * * *",
            "2026-10-23T23:00:00Z",
            ["2026-10-24T00:00:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"],
        ),
        (
            "0 2 29 2 *",
            "2026-01-01T00:00:00Z",
            ["2028-02-29T01:00:00Z", "2032-02-29T01:00:00Z", "2036-02-29T01:00:00Z"],
        ),
    ];
    for (cron, start, expected) in rows {
        assert_eq!(nights(cron, "Europe/Berlin", start), expected, "{cron} from {start}");
    }
}

#[test]
fn invalid_expressions_and_unknown_zones_are_refused() {
    for (cron, zone, message) in [
        ("0 2 30 2 *", "UTC", r#"cron expression "0 2 30 2 *" never matches"#),
        ("at two", "UTC", r#"invalid cron expression "at two""#),
        ("0 2 * * *", "Europe/Atlantis", r#"unknown time zone "Europe/Atlantis""#),
    ] {
        let error = Plan::new(cron, zone, HOUR).expect_err("a refusal");
        assert_eq!(error.to_string(), message);
    }
}

/// Starts a program that runs the job.
async fn start(
    bed: &TestBed,
    plan: &Plan,
    notes: &Notes,
    failures: &[(&str, usize)],
) -> keylapse::Result<RunningListener> {
    begin(&bed.schedule()).await?;
    let (slots, runs, state) = (slots()?, runs()?, (bed.schedule(), plan.clone(), notes.world(failures)));
    bed.listen(|listener| listener.state(state).on(slots, arm_next).on(runs, run)).await
}

/// Returns a bed that starts at noon, and a plan.
fn bed(skip_after: Duration) -> (TestBed, Notes, Plan) {
    let bed = TestBed::starting_at(time("2026-07-01T12:00:00Z"));
    (bed, Notes::new(), Plan::new("0 2 * * *", "UTC", skip_after).expect("a plan"))
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_retried_and_does_not_delay_others() -> keylapse::Result<()> {
    let (bed, notes, plan) = bed(HOUR);
    // The backup of 2 July 2026, 02:00, fails at every attempt.
    let bad = "1782957600";
    start(&bed, &plan, &notes, &[(bad, usize::MAX)]).await?;
    bed.advance(72 * HOUR).await;
    assert_eq!(notes.jobs(Event::Done), ["1783044000", "1783130400"]);
    assert!(notes.jobs(Event::Failed).iter().all(|job| job == bad) && notes.jobs(Event::Failed).len() > 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nights_without_a_listener_run_once_or_are_skipped() -> keylapse::Result<()> {
    for (skip_after, late_runs) in [(HOUR, vec![]), (Duration::MAX, vec!["1782957600"])] {
        let (bed, notes, plan) = bed(skip_after);
        let listening = start(&bed, &plan, &notes, &[]).await?;
        bed.advance(HOUR).await;
        listening.stop().await?;
        bed.advance(3 * 24 * HOUR).await;
        start(&bed, &plan, &notes, &[]).await?;
        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(notes.jobs(Event::Done), late_runs);
        bed.advance(14 * HOUR).await;
        assert_eq!(notes.jobs(Event::Done).last().map(String::as_str), Some("1783216800"));
    }
    Ok(())
}

/// Programs are restarted while others run. The time of the bed differs from the clocks of the programs.
#[tokio::test(start_paused = true)]
async fn each_slot_runs_once_under_its_own_id_for_any_clock() -> keylapse::Result<()> {
    let bed = TestBed::starting_at(time("2026-07-01T12:00:00Z"));
    let (notes, plan) = (Notes::new(), Plan::new("* * * * * *", "UTC", HOUR).expect("a plan"));
    for _ in 0..34 {
        let listening = start(&bed, &plan, &notes, &[]).await?;
        start(&bed, &plan, &notes, &[]).await?;
        bed.advance(Duration::from_millis(930)).await;
        listening.stop().await?;
    }
    let slots: Vec<_> = (1_782_907_201..=1_782_907_231).map(|slot: u64| slot.to_string()).collect();
    assert_eq!(notes.jobs(Event::Done), slots);
    assert_eq!(notes.ids(), slots.iter().map(|slot| format!("backup:{slot}")).collect::<Vec<_>>());
    Ok(())
}

/// A program dies after it armed a run, and before it stored the slot. The slot is armed again, and runs once.
#[tokio::test(start_paused = true)]
async fn a_program_that_dies_while_it_arms_leaves_no_gap() -> keylapse::Result<()> {
    let (bed, notes, plan) = bed(HOUR);
    start(&bed, &plan, &notes, &[]).await?;
    bed.advance(HOUR).await;
    // This restores the state before the slot was stored.
    let _ = bed.schedule().arm(&slots()?, "backup", Duration::ZERO, &SystemTime::UNIX_EPOCH).await?;
    bed.advance(72 * HOUR).await;
    assert_eq!(notes.jobs(Event::Done), ["1782957600", "1783044000", "1783130400"]);
    Ok(())
}
