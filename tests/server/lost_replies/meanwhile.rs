//! A reply is lost, and somebody else is quicker than the repeat.
//!
//! A row's meanwhile must not be undone: what is in Redis after the repeat is
//! what was there before it.

use keylapse_support::skipped_on_a_cluster;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, RepairTarget};

use super::call::LEASE;
use super::row::{Row, check};
use super::step::{
    Step, ack, again, arm, arm_absent, arm_all, arm_now, arm_own, cancel, claim, claim_quarantined, dead,
    replay, retry, settle, snooze,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_does_not_undo_what_others_did_meanwhile() {
    if skipped_on_a_cluster("scripts cannot read the clock of this test, a key, beside those of another slot")
    {
        return;
    }
    check(&[arms(), kept_armings(), cancels(), claims(), ends(), others()].concat()).await;
}

fn arms() -> Vec<Row> {
    let runs = || vec![Step::Wait(100), claim(1)];
    let armed = |name, meanwhile: &[Step]| Row::of(name, [], arm("a", 1)).meanwhile(meanwhile);
    let brought_back = [
        arm("a", 2),
        settle("a", 1, dead()),
        cancel("a", 4),
        Step::Replay { key: "a", died: (1, Some(100)), number: 5, anew: None },
    ];
    let ran = |name, meanwhile: &[Step]| armed(name, &[&runs()[..], meanwhile].concat());
    vec![
        armed("armed, then replaced", &[arm("a", 2)]).repeat_says("Superseded"),
        armed("armed, then cancelled", &[cancel("a", 2)]).repeat_says("Superseded"),
        armed("armed, then cancelled and armed", &[cancel("a", 2), arm("a", 3)]).repeat_says("Superseded"),
        armed("armed, then rescheduled", &[Step::Reschedule("a", WireWhen::In(7))]).repeat_says("Armed at 7"),
        Row::of("armed if absent, then cancelled", [], arm_absent("a", 1))
            .meanwhile([cancel("a", 2)])
            .repeat_says("Superseded"),
        Row::of("armed if absent, then replaced", [], arm_absent("a", 1))
            .meanwhile([arm("a", 2)])
            .repeat_says("Superseded"),
        Row::of("many armed, one then replaced", [], arm_all(&[("a", 1), ("b", 2)]))
            .meanwhile([arm("b", 3)])
            .repeat_says("Armed at 100, Superseded"),
        ran("armed, then claimed", &[]),
        ran("armed, then retried", &[settle("a", 1, retry())]).repeat_says("Armed at 150"),
        ran("armed, then run again", &[settle("a", 1, again(5))]).repeat_says("Superseded"),
        ran("armed, then arming its own key", &[arm("a", 2)]),
        ran("armed, then failed in favour of a later arming", &[arm("a", 2), settle("a", 1, retry())])
            .repeat_says("Superseded"),
        ran("armed, then done, and followed by a later arming", &[arm("a", 2), ack("a", 1)])
            .repeat_says("Superseded"),
        ran("armed, then dead, and followed by a later arming", &[arm("a", 2), settle("a", 1, dead())])
            .repeat_says("Superseded"),
        // A replay clears the tombstone of what it brings back.
        ran("armed, then dead, followed, and replayed", &brought_back),
        ran(
            "armed, then dead, followed, replayed and done",
            &[&brought_back[..], &[claim(3), ack("a", 3)]].concat(),
        )
        .repeat_says("Armed at 240")
        .repeat_acts_as(arm("a", 1)),
        // Neither timer nor tombstone: it runs again, with the same arming id.
        ran("armed, then done", &[ack("a", 1)]).repeat_says("Armed at 240").repeat_acts_as(arm("a", 1)),
        ran("armed, then dead", &[settle("a", 1, dead())])
            .repeat_says("Armed at 240")
            .repeat_acts_as(arm("a", 1)),
    ]
}

/// Five leases are lost.
fn buried() -> Vec<Step> {
    let lost = [claim(2), claim(3), claim_quarantined(4), claim_quarantined(5), claim_quarantined(6)];
    let lost = lost.map(|claim| [claim, Step::Wait(LEASE)]);
    [&[Step::Wait(LEASE)], &lost.concat()[..], &[claim_quarantined(7)]].concat()
}

/// An arming that is kept for after a running attempt stays behind it.
fn kept_armings() -> Vec<Row> {
    let kept = |name, meanwhile: &[Step]| {
        Row::of(name, [arm_now("a", 1), claim(1)], arm("a", 2)).meanwhile(meanwhile)
    };
    let lease_is_over = || vec![Step::Wait(LEASE), claim(2), Step::Wait(LEASE), claim(3)];
    vec![
        kept("kept, then released", &[settle("a", 1, AttemptEnd::Release)]),
        kept("kept, then snoozed", &[settle("a", 1, snooze())]),
        kept("kept, then in quarantine", &lease_is_over()),
        kept("kept, then running from quarantine", &[&lease_is_over()[..], &[claim_quarantined(4)]].concat()),
        kept("kept, then acked", &[ack("a", 1)]).repeat_says("Armed at 100"),
        kept("kept, then retried", &[settle("a", 1, retry())]).repeat_says("Armed at 100"),
        kept("kept, then dead", &[settle("a", 1, dead())]).repeat_says("Armed at 100"),
        kept("kept, then its turn", &[ack("a", 1), Step::Wait(100), claim(2)]).repeat_says("Armed at 100"),
        Row::of("kept of its own, then buried with it", [arm_now("a", 1), claim(1)], arm_own("a", 2, 1))
            .meanwhile(&buried()[..])
            .repeat_says("Superseded"),
        kept("kept, then cancelled", &[cancel("a", 3)]).repeat_says("Superseded"),
        kept("kept, then replaced", &[arm("a", 3)]).repeat_says("Superseded"),
        kept("kept, released, then replaced", &[settle("a", 1, AttemptEnd::Release), arm("a", 3)])
            .repeat_says("Superseded"),
        Row::of("refused, then released", [arm_now("a", 1), claim(1)], arm_absent("a", 2))
            .meanwhile([settle("a", 1, AttemptEnd::Release)]),
    ]
}

fn cancels() -> Vec<Row> {
    let cancelled =
        |name, meanwhile: &[Step]| Row::of(name, [arm("a", 1)], cancel("a", 1)).meanwhile(meanwhile);
    let fenced = |name, meanwhile: &[Step]| {
        Row::of(name, [arm_now("a", 1), claim(1)], cancel("a", 1)).meanwhile(meanwhile)
    };
    vec![
        cancelled("cancelled, then armed", &[arm("a", 2)]).repeat_says("Cancelled -"),
        cancelled("cancelled, then armed and claimed", &[arm_now("a", 2), claim(2)])
            .repeat_says("Cancelled -"),
        cancelled("cancelled, then armed and cancelled by another", &[arm("a", 2), cancel("a", 2)])
            .repeat_says("Cancelled -"),
        fenced("fenced, then armed", &[arm("a", 2)]).repeat_says("InFlight -"),
        fenced("fenced, then armed and claimed", &[arm_now("a", 2), claim(2)]).repeat_says("InFlight -"),
        fenced("fenced, then acked too late", &[ack("a", 1)]).repeat_says("InFlight -"),
        // The first found nothing and left nothing: the repeat is the cancel.
        Row::of("nothing to cancel, then armed", [], cancel("a", 1))
            .meanwhile([arm("a", 1)])
            .repeat_says("Cancelled at 100")
            .repeat_acts_as(cancel("a", 1)),
    ]
}

fn claims() -> Vec<Row> {
    let claimed = |name, meanwhile: &[Step]| {
        Row::of(name, [arm_now("a", 1), arm("b", 2)], claim(1)).meanwhile(meanwhile)
    };
    let renewed = || Step::Renew("a", 1);
    vec![
        claimed("claimed, then cancelled", &[cancel("a", 1)]).repeat_says("[]"),
        claimed("claimed, then cancelled and armed", &[cancel("a", 1), arm_now("a", 3)]).repeat_says("[]"),
        claimed("claimed, then claimed by another", &[Step::Wait(LEASE), claim(2)]).repeat_says("[]"),
        claimed("claimed, then armed for later", &[arm("a", 3)]).repeat_acts_as(renewed()),
        claimed("claimed, then paused", &[Step::Pause(Some("why"))])
            .repeat_says("[1 of app:t:a: attempt 1, 0 lost, 0 snoozes], paused: why")
            .repeat_acts_as(renewed()),
        claimed("claimed, and more is due", &[arm_now("c", 3)]).repeat_acts_as(renewed()),
        claimed("claimed, and another claims the rest", &[Step::Wait(100), claim(2)])
            .repeat_acts_as(renewed()),
        claimed("claimed, and its record was deleted", &[Step::Raw(&["DEL", "keylapse:{t/0}:timers"])])
            .repeat_says("[]"),
        Row::of("claimed nothing, then something is due", [], claim(1))
            .meanwhile([arm_now("a", 1)])
            .repeat_says("[1 of app:t:a: attempt 1, 0 lost, 0 snoozes]")
            .repeat_acts_as(claim(1)),
    ]
}

fn ends() -> Vec<Row> {
    let runs = || [arm_now("a", 1), claim(1)];
    let acked = |name, meanwhile: &[Step]| {
        Row::of(name, runs(), ack("a", 1)).meanwhile(meanwhile).repeat_says("gone: [0], followed: ")
    };
    let mut rows = vec![
        acked("acked, then armed", &[arm("a", 2)]),
        acked("acked, then armed and claimed", &[arm_now("a", 2), claim(2)]),
    ];
    let ends = [retry(), snooze(), again(5), AttemptEnd::Release];
    rows.extend(ends.into_iter().flat_map(|end| {
        let settled = |name, meanwhile: &[Step]| {
            Row::of(name, runs(), settle("a", 1, end.clone())).meanwhile(meanwhile).repeat_says("Gone")
        };
        [
            settled("settled, then claimed", &[Step::Wait(50), claim(2)]),
            settled("settled, then cancelled", &[cancel("a", 2)]),
            settled("settled, then replaced", &[arm("a", 2)]),
        ]
    }));
    rows.push(
        Row::of("buried, then replayed", runs(), settle("a", 1, dead()))
            .meanwhile([replay("a", 1, 3)])
            .repeat_says("Gone"),
    );
    rows
}

fn others() -> Vec<Row> {
    let dead_letter = || vec![arm_now("a", 1), claim(1), settle("a", 1, dead())];
    // A replay is remembered by an id of its own, whatever becomes of the timer.
    let replayed =
        |name, meanwhile: &[Step]| Row::of(name, dead_letter(), replay("a", 1, 5)).meanwhile(meanwhile);
    let dies = || [Step::Wait(5), claim(2), settle("a", 2, dead())];
    let by_another = Step::Replay { key: "a", died: (1, Some(5)), number: 6, anew: None };
    let reschedule = || Step::Reschedule("a", WireWhen::In(100));
    let (pause, resume) = (Step::Pause(Some("why")), Step::Pause(None));
    vec![
        replayed("replayed, then claimed", &[claim(2)]),
        replayed("replayed, then cancelled", &[cancel("a", 3)]),
        replayed("replayed, then replaced", &[arm("a", 3)]),
        replayed("replayed, then done", &[claim(2), ack("a", 2)]),
        replayed("replayed, then done and armed", &[claim(2), ack("a", 2), arm("a", 3)]),
        replayed("replayed, then dead again", &dies()),
        replayed("replayed, then dead again and replayed by another", &[&dies()[..], &[by_another]].concat()),
        // The first found a timer, and left it alone: the repeat is the replay.
        Row::of(
            "not replayed for a timer, which then ended",
            [&dead_letter()[..], &[arm("a", 2)]].concat(),
            replay("a", 1, 5),
        )
        .meanwhile([cancel("a", 3)])
        .repeat_says("Replayed")
        .repeat_acts_as(replay("a", 1, 5)),
        Row::of("rescheduled, then claimed", [arm("a", 1)], reschedule())
            .meanwhile([Step::Wait(100), claim(1)])
            .repeat_says("InFlight"),
        Row::of("rescheduled, then cancelled", [arm("a", 1)], reschedule())
            .meanwhile([cancel("a", 1)])
            .repeat_says("NotArmed"),
        Row::of("renewed, then claimed by another", [arm_now("a", 1), claim(1)], Step::Renew("a", 1))
            .meanwhile([Step::Wait(LEASE), claim(2)])
            .repeat_says("gone: [0]"),
        Row::of("triggered, then taken", [], Step::Trigger("a", 1))
            .meanwhile([Step::Raw(&["SET", "app:t:a", "x"])])
            .repeat_says("Taken"),
        Row::of("untriggered, then triggered by another", [Step::Trigger("a", 1)], Step::Untrigger("a", 1))
            .meanwhile([Step::Trigger("a", 2)])
            .repeat_says("false"),
        Row::of(
            "repaired, then claimed",
            [arm_now("a", 1), Step::Raw(&["DEL", "keylapse:{t/0}:due"])],
            Step::Repair(RepairTarget::Records),
        )
        .meanwhile([claim(1)])
        .repeat_says("cursor 0, repaired 0"),
        // The last word counts, and the repeat is the last: these say how it is
        // to be, whatever it was.
        Row::of("rescheduled, then replaced", [arm("a", 1)], reschedule())
            .meanwhile([arm("a", 2)])
            .repeat_says("at 140")
            .repeat_acts_as(reschedule()),
        Row::of("paused, then resumed", [], pause.clone())
            .meanwhile([resume.clone()])
            .repeat_acts_as(pause.clone()),
        Row::of("resumed, then paused", [pause.clone()], resume.clone())
            .meanwhile([pause])
            .repeat_acts_as(resume),
    ]
}
