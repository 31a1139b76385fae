//! A reply is lost, and nothing happens until the repeat.

use keylapse_support::{Binary, skipped_on_a_cluster};
use std::collections::BTreeSet;

use keylapse_connection::id::DestroyId;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, CloseMode, ListTarget, MovedKind, RepairTarget, RepartitionStep, scripts};

use super::attached;
use super::call::{LEASE, START};
use super::row::{Row, check, check_on};
use super::step::{
    Step, ack, again, arm, arm_absent, arm_all, arm_now, arm_own, cancel, claim, claim_quarantined, dead,
    replay, retry, settle, snooze,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_answers_as_the_first_call_and_leaves_the_same_behind() {
    if skipped_on_a_cluster("scripts cannot read the clock of this test, a key, beside those of another slot")
    {
        return;
    }
    let rows = rows();
    let covered: BTreeSet<_> = rows.iter().map(Row::script).collect();
    let all: BTreeSet<_> = scripts::all().map(|script| script.name).collect();
    assert_eq!(covered, all, "each script has a row");
    check(&rows).await;
}

/// A row of each script; a canary is made by the test itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_torn_at_any_byte_is_one_that_is_lost() {
    if skipped_on_a_cluster("scripts cannot read the clock of this test, a key, beside those of another slot")
    {
        return;
    }
    let mut rows: Vec<_> = rows().into_iter().filter(|row| row.script() != "canary").collect();
    rows.sort_by_key(Row::script);
    rows.dedup_by_key(|row| row.script());
    check_on(Binary::find().expect("a server"), &rows, Row::tear).await;
}

fn rows() -> Vec<Row> {
    [arms(), cancels(), claims(), acks(), settles(), others(), attached::rows()].concat()
}

fn waiting() -> [Step; 1] {
    [arm("a", 1)]
}

fn running() -> [Step; 2] {
    [arm_now("a", 1), claim(1)]
}

/// With another arming kept for after it.
fn running_with_next() -> [Step; 3] {
    [arm_now("a", 1), claim(1), arm("a", 2)]
}

/// Two leases are lost, and the timer has just gone into quarantine.
fn quarantined() -> [Step; 6] {
    let wait = || Step::Wait(LEASE);
    [arm_now("a", 1), claim(1), wait(), claim(2), wait(), claim(3)]
}

fn arms() -> Vec<Row> {
    vec![
        Row::of("arm", [], arm("a", 1)),
        Row::of("arm for now", [], arm_now("a", 1)),
        Row::of("arm many", [arm("c", 9)], arm_all(&[("a", 1), ("b", 2)])),
        Row::of("arm if absent", [], arm_absent("a", 1)),
        Row::of("arm if absent, but it is not", waiting(), arm_absent("a", 2)),
        Row::of("arm if absent, but it runs", running(), arm_absent("a", 2)),
        Row::of("arm over a running attempt", running(), arm("a", 2)),
        Row::of("arm over a running attempt and a kept arming", running_with_next(), arm("a", 3)),
        Row::of("arm its own key", running(), arm_own("a", 2, 1)),
        Row::of("replace", waiting(), arm("a", 2)),
        Row::of("replace a retry", [&running()[..], &[settle("a", 1, retry())]].concat(), arm("a", 2)),
        Row::of("replace what is in quarantine", quarantined(), arm("a", 2)),
        Row::of("replace some of many", waiting(), arm_all(&[("b", 2), ("a", 3)])),
    ]
}

fn cancels() -> Vec<Row> {
    // The tombstone of a cancel does not say when what it ended was due.
    vec![
        Row::of("cancel", waiting(), cancel("a", 1)).repeat_says("Cancelled -"),
        Row::of("cancel a running attempt", running(), cancel("a", 1)).repeat_says("InFlight -"),
        Row::of("cancel what is kept, too", running_with_next(), cancel("a", 1)).repeat_says("InFlight -"),
        Row::of("cancel what is in quarantine", quarantined(), cancel("a", 1)).repeat_says("Cancelled -"),
        Row::of("cancel what is not armed", [], cancel("a", 1)),
        Row::of("cancel some of many", waiting(), Step::Cancel(vec![("b", 1), ("a", 2)]))
            .repeat_says("NotArmed -, Cancelled -"),
    ]
}

fn claims() -> Vec<Row> {
    // A repeat renews the leases of what it returns, as from the moment of the
    // repeat, and tells nothing of what the first call did besides.
    let retried = [&running()[..], &[settle("a", 1, retry()), Step::Wait(60)]].concat();
    let poison =
        [&quarantined()[..], &[4, 5, 6].map(|token| [claim_quarantined(token), Step::Wait(LEASE)]).concat()]
            .concat();
    vec![
        Row::of("claim", [arm_now("a", 1)], claim(1)).repeat_acts_as(renew("a", 1)),
        Row::of("claim a retry", retried, claim(2)).repeat_acts_as(renew("a", 2)),
        Row::of("claim what lost a lease", [&running()[..], &[Step::Wait(LEASE)]].concat(), claim(2))
            .repeat_acts_as(renew("a", 2)),
        Row::of("claim what is in quarantine", quarantined(), claim_quarantined(4))
            .repeat_acts_as(renew("a", 4)),
        Row::of("claim what goes into quarantine", quarantined()[..5].to_vec(), claim(3)),
        Row::of("claim what turns out to be poison", poison.clone(), claim_quarantined(7)).repeat_says("[]"),
        Row::of(
            "claim what turns out to be poison, and has armed its own key",
            [&poison[..9], &[arm_own("a", 2, 1)], &poison[9..]].concat(),
            claim_quarantined(7),
        )
        .repeat_says("[]"),
        Row::of("claim when nothing is due", waiting(), claim(1)),
        Row::of("claim while paused", [arm_now("a", 1), Step::Pause(Some("why"))], claim(1)),
    ]
}

fn renew(key: &'static str, token: u8) -> Step {
    Step::Renew(key, token)
}

fn acks() -> Vec<Row> {
    // What an ack has ended is gone; the repeat reads this as done.
    vec![
        Row::of("ack", running(), ack("a", 1)).repeat_says("gone: [0], followed: "),
        Row::of(
            "ack what is in quarantine",
            [&quarantined()[..], &[claim_quarantined(4)]].concat(),
            ack("a", 4),
        )
        .repeat_says("gone: [0], followed: "),
        Row::of("ack with an arming kept", running_with_next(), ack("a", 1))
            .repeat_says("gone: [0], followed: "),
        Row::of("ack many", [arm_now("a", 1), arm_now("b", 2), claim(1)], Step::Ack(vec!["b", "a"], 1))
            .repeat_says("gone: [0, 1], followed: "),
        Row::of("ack what is not held", running(), ack("a", 2)),
    ]
}

fn settles() -> Vec<Row> {
    let ends = [
        ("retry", retry()),
        ("snooze", snooze()),
        ("run again", again(5)),
        ("bury", dead()),
        ("release", AttemptEnd::Release),
    ];
    let mut rows = Vec::new();
    for (name, end) in ends {
        rows.push(Row::of(name, running(), settle("a", 1, end.clone())).repeat_says("Gone"));
        rows.push(Row::of(name, running_with_next(), settle("a", 1, end.clone())).repeat_says("Gone"));
        rows.push(Row::of(name, running(), settle("a", 2, end)));
    }
    rows
}

fn others() -> Vec<Row> {
    let dead_letter = [&running()[..], &[settle("a", 1, dead())]].concat();
    let followed = [&running_with_next()[..], &[settle("a", 1, dead()), cancel("a", 4)]].concat();
    let anew = Step::Replay { key: "a", died: (1, Some(0)), number: 3, anew: Some(2) };
    let with_a_timer = |arming| [&dead_letter[..], &[arm("a", arming)]].concat();
    let report = Step::Report { leaves: false };
    let in_100 = Step::Reschedule("a", WireWhen::In(100));
    let (pause, resume) = (Step::Pause(Some("why")), Step::Pause(None));
    vec![
        Row::of("reschedule", waiting(), Step::Reschedule("a", WireWhen::At(START + 500))),
        // It is said when a timer is to be, not by whom: a delay counts from the repeat.
        Row::of("reschedule by a delay", waiting(), in_100.clone())
            .repeat_says("at 140")
            .repeat_acts_as(in_100.clone()),
        Row::of("reschedule a running attempt", running(), in_100.clone()),
        Row::of("reschedule what is not armed", [], in_100),
        Row::of("renew", running(), renew("a", 1)).repeat_acts_as(renew("a", 1)),
        Row::of("renew what is not held", running(), renew("a", 2)),
        Row::of("get_timer", running(), Step::Look("a")),
        Row::of("peek", running(), Step::Peek),
        Row::of("overview", running(), Step::Overview),
        Row::of(
            "overview of a retry",
            [&running()[..], &[settle("a", 1, retry()), Step::Wait(10)]].concat(),
            Step::Overview,
        ),
        Row::of("page", running(), Step::Page),
        Row::of("import", [], Step::Import("a", 1)).repeat_says("[There]"),
        Row::of("import what is there", waiting(), Step::Import("a", 1)),
        Row::of("import beside another", waiting(), Step::Import("a", 2)),
        Row::of("more is left than can be run", [arm_now("a", 1)], Step::Left(None)),
        Row::of("whoever led has ended", running(), Step::Left(Some(1))),
        // Each answers what stood there before, which the first call has changed.
        Row::of("pause", [], pause.clone()).repeat_says("Some(\"why\")"),
        Row::of("resume", [pause.clone()], resume.clone()).repeat_says("None"),
        // A time counts from the repeat.
        Row::of("look on", [], Step::Tail(1000)).repeat_says("1040").repeat_acts_as(Step::Tail(1000)),
        Row::of("look on beside another", [Step::Tail(60_000)], Step::Tail(1000)),
        Row::of("keep a journal", [], Step::Journal(10)).repeat_says("false"),
        Row::of("keep none any more", [Step::Journal(10)], Step::Journal(0)).repeat_says("false"),
        Row::of("ack into the journal", [&running()[..], &[Step::Journal(10)]].concat(), ack("a", 1))
            .repeat_says("gone: [0], followed: "),
        Row::of("cancel into the journal", [&waiting()[..], &[Step::Journal(10)]].concat(), cancel("a", 2))
            .repeat_says("Cancelled -"),
        Row::of("claim before those who look on", [arm_now("a", 1), Step::Tail(60_000)], claim(1))
            .repeat_acts_as(renew("a", 1)),
        Row::of("replay", dead_letter.clone(), replay("a", 1, 3)),
        Row::of("replay as new", dead_letter.clone(), anew),
        Row::of("replay nothing", [], replay("a", 1, 3)),
        Row::of(
            "replay what died at another time",
            [&[Step::Wait(1)], &dead_letter[..]].concat(),
            replay("a", 1, 3),
        ),
        Row::of("replay over a timer", with_a_timer(2), replay("a", 1, 3)),
        // A late repeat of its arm has armed it once more.
        Row::of("replay over a timer of its own arming", with_a_timer(1), replay("a", 1, 3)),
        Row::of("replay what another has followed", followed, replay("a", 1, 3)),
        Row::of("drop a dead letter", dead_letter.clone(), Step::Drop("a", 1)).repeat_says("false"),
        Row::of("init", [], Step::Init),
        Row::of("set_marker", [], Step::Trigger("a", 1)),
        Row::of(
            "trigger over what others have written",
            [Step::Raw(&["SET", "app:t:a", "x"])],
            Step::Trigger("a", 1),
        ),
        Row::of("delete_marker", [Step::Trigger("a", 1)], Step::Untrigger("a", 1)).repeat_says("false"),
        Row::of("forward", [], Step::Forward("1")).repeat_says("Duplicate"),
        Row::of("forward what was", [Step::Forward("1")], Step::Forward("1")),
        Row::of(
            "forward where no room is",
            [Step::Raw(&["LPUSH", "app:jobs", "x", "y"])],
            Step::Forward("1"),
        ),
        // It says when it was made.
        Row::of("save_report", [], report.clone()).repeat_acts_as(report.clone()),
        Row::of("read reports", [report.clone()], Step::Reports),
        Row::of("leave", [report], Step::Report { leaves: true }),
        Row::of("canary", [], Step::Canary).repeat_says("4000000000000:0, new: 0"),
        Row::of("canary after another", [Step::Canary, Step::Raw(&["DEL", FIRST_CANARY])], Step::Canary)
            .repeat_says("4000000000001:4000000000000, new: 0"),
    ]
    .into_iter()
    .chain(repairs())
    .chain(destroyings())
    .chain(repartitionings())
    .collect()
}

fn destroyings() -> Vec<Row> {
    let id = DestroyId::from_bytes(b"destroys").expect("an id has eight bytes");
    let close = |how| Step::Close(how);
    let forced = || close(CloseMode::ByForce(id));
    let empty = || [arm("a", 1), cancel("a", 1)];
    let closed = |by| [&waiting()[..], &[arm("b", 2), close(by)]].concat();
    let destroy = |gone: &[&'static str], most| Step::Destroy(gone.to_vec(), most);
    vec![
        Row::of("ask before a topic is destroyed", waiting(), close(CloseMode::Ask)),
        Row::of("close what is empty", empty(), close(CloseMode::Empty)),
        Row::of("close what never was", [], close(CloseMode::Empty)),
        Row::of("close what is armed", waiting(), close(CloseMode::Empty)),
        Row::of("close what is to be detached", empty(), close(CloseMode::Detached)),
        Row::of("close by force", waiting(), forced()),
        Row::of(
            "open again",
            [&empty()[..], &[close(CloseMode::Empty)]].concat(),
            close(CloseMode::Open(None)),
        ),
        Row::of(
            "open what was closed by force",
            closed(CloseMode::ByForce(id)),
            close(CloseMode::Open(None)),
        ),
        Row::of(
            "open what a call that is over has left",
            closed(CloseMode::ByForce(id)),
            close(CloseMode::Open(Some(id))),
        ),
        Row::of("name what is to be removed", closed(CloseMode::ByForce(id)), destroy(&[], 1)),
        Row::of("remove some, and name others", closed(CloseMode::ByForce(id)), destroy(&["a"], 5)),
        Row::of("remove from what is open", waiting(), destroy(&["a"], 5)),
        // Where it had been lost, it may as well have been made anew.
        Row::of("end a partition", closed(CloseMode::ByForce(id)), destroy(&[], 0)).repeat_says("Gone"),
        Row::of("end what is not there", [], destroy(&[], 0)),
    ]
}

fn repartitionings() -> Vec<Row> {
    let to = Step::Reshape;
    let closed =
        |before: &[Step]| [before, &[to(RepartitionStep::Pause), to(RepartitionStep::Close)]].concat();
    let share = RepartitionStep::Share { paused: Some("why"), from: 1, trimmed: 7 };
    let two = [arm("a", 1), arm("b", 2)];
    vec![
        Row::of("ask before it is repartitioned", waiting(), to(RepartitionStep::Ask)),
        Row::of("pause to repartition", waiting(), to(RepartitionStep::Pause)),
        Row::of("pause what others have paused", [Step::Pause(Some("why"))], to(RepartitionStep::Pause)),
        Row::of("close to repartition", [to(RepartitionStep::Pause)], to(RepartitionStep::Close)),
        Row::of("close what is not paused", waiting(), to(RepartitionStep::Close)),
        Row::of("share what others say", closed(&[]), to(share)),
        Row::of("open with the new number", closed(&waiting()), to(RepartitionStep::Open)),
        Row::of(
            "resume what was to be repartitioned",
            [to(RepartitionStep::Pause)],
            to(RepartitionStep::Resume),
        )
        .repeat_says("false Open 1 to 0, paused: None, trimmed: 0"),
        Row::of("clean_up", [to(RepartitionStep::Pause)], to(RepartitionStep::Tidy)),
        Row::of("list_names", two.clone(), Step::List(ListTarget::Records)),
        Row::of("list what runs", running(), Step::List(ListTarget::Running)),
        Row::of("move_read", two.clone(), Step::Take(MovedKind::Timers, vec!["a", "c", "b"])),
        Row::of("move_write", closed(&two), Step::Put(3, "c")),
        Row::of("put into what is open", two.clone(), Step::Put(1, "c")),
        Row::of("move_delete", closed(&two), Step::Shed(vec!["a"])),
        Row::of("shed from what is open", two, Step::Shed(vec!["a"])),
    ]
}

const FIRST_CANARY: &str = "keylapse:{heartbeat/0}:4000000000000:0";

/// The repeat finds nothing left to be put right.
fn repairs() -> Vec<Row> {
    let lost_entry = [arm("a", 1), Step::Raw(&["DEL", "keylapse:{t/0}:due"])];
    let lost_lease = [arm_now("a", 1), claim(1), Step::Raw(&["DEL", "keylapse:{t/0}:due"])];
    let lost_record = [arm_now("a", 1), claim(1), Step::Raw(&["DEL", "keylapse:{t/0}:timers"])];
    let only_next =
        [&running_with_next()[..], &[Step::Raw(&["DEL", "keylapse:{t/0}:timers", "keylapse:{t/0}:due"])]];
    let old_slot =
        [Step::Raw(&["HSET", "keylapse:{t/0}:claimers", "old", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"])];
    let repaired = |name, given: Vec<Step>, scan| {
        Row::of(name, given, Step::Repair(scan)).repeat_says("cursor 0, repaired 0")
    };
    vec![
        repaired("repair records", lost_entry.to_vec(), RepairTarget::Records),
        repaired("repair held records", lost_lease.to_vec(), RepairTarget::Records),
        repaired("repair states", lost_record.to_vec(), RepairTarget::States),
        repaired("repair kept armings", only_next.concat(), RepairTarget::Next),
        repaired("repair claim slots", old_slot.to_vec(), RepairTarget::Slots),
        Row::of("repair where all is well", running(), Step::Repair(RepairTarget::Records)),
    ]
}
