//! Keys that other programs write: the calls, and a row for each case.

use bytes::Bytes;
use keylapse_connection::id::SlotId;
use keylapse_wire::policy::{CopySpec, FieldSelection};
use keylapse_wire::time::ServerTime;
use keylapse_wire::{
    AnnouncedExpiry, CheckAction, CheckResult, DeadlineReading, ExpiryIdentity, NodeId, Position, TakeChecks,
    TrackedKey,
};

use super::call::{Caller, START, Said, bytes, id, key, list};
use super::row::Row;
use crate::model::rules::attached::on;

use super::step::{Spot, Step, fire, note};

const CAPTURE: CopySpec = CopySpec { cap: 100, dumps: true, fields: FieldSelection::None };
/// When enrolled keys are to expire.
const DEADLINE: u64 = START + 100;
/// No canary has a number that the clock has not reached.
const FIRST_CANARY: u64 = START - 1000;

/// When something was read: later, the later its place; without one, at the start.
fn stamp(at: Position) -> ServerTime {
    ServerTime::new(0, micros(at))
}

fn micros(at: Position) -> u64 {
    let ms = if at.canary == 0 { START } else { at.canary };
    ms * 1000 + u64::from(at.count)
}

fn place(at: Spot) -> Option<Position> {
    at.map(|(canary, count)| Position { canary: FIRST_CANARY + canary, count, ..Position::default() })
}

/// By the canary before it.
fn anchored(at: Position) -> ExpiryIdentity {
    ExpiryIdentity::Anchored { at, since: at.canary }
}

fn watch(name: &str, at: Position) -> TrackedKey {
    let [deadline, canary, stamp] = [DEADLINE, at.canary, micros(at)].map(u64::to_be_bytes);
    let head = [&deadline[..], &canary, &at.count.to_be_bytes(), &stamp].concat();
    TrackedKey { key: key(name), head: head.into(), deadline: DEADLINE, at, announced_elsewhere: false }
}

impl Caller {
    pub(super) async fn make_attached(&self, step: &Step) -> Said {
        let Self { store, watched, .. } = self;
        Ok(match step {
            Step::Note(all) => {
                let note = |(name, at, arming): &(&str, Spot, u8)| AnnouncedExpiry {
                    key: key(name),
                    identity: place(*at).map_or(ExpiryIdentity::Unknown(NodeId::NONE), anchored),
                    arming: id(*arming),
                };
                let notes: Vec<_> = all.iter().map(note).collect();
                format!("{:?}", store.record_expiries(watched, &on(), &notes).await?)
            }
            Step::Enrol(name, at) => {
                let at = place(*at).unwrap_or_default();
                let copy = Bytes::from_static(b"\x02value");
                let read = DeadlineReading {
                    key: key(name),
                    deadline: DEADLINE,
                    at,
                    stamp: stamp(at),
                    requested_at: ServerTime::default(),
                    copy,
                };
                let reply = store.track_keys(watched, &on(), &[read]).await?;
                format!("{:?}, next {:?}", reply.1, reply.0.map(|at| at - START))
            }
            Step::DueChecks => {
                let looks = store
                    .take_checks(
                        watched,
                        TakeChecks { slot: slot(1), limit: 10, hold_ms: 5000, overdue_ms: 0 },
                    )
                    .await?;
                list(looks.watches.iter().map(|watch| watch.key.escape_ascii().to_string()))
            }
            Step::Judge(name, at, deed) => {
                // What was looked at was enrolled at the first canary.
                let watch = watch(name, Position { canary: FIRST_CANARY, ..Position::default() });
                let at = place(*at).unwrap_or_default();
                let judgement = CheckResult { watch, at, stamp: stamp(at), before: None, deed: *deed };
                format!("{:?}", store.apply_checks(watched, &on(), &[judgement]).await?.1)
            }
            Step::Policy(revision) => {
                format!("{:?}", store.agree_on_policy(watched, *revision, &format!("of {revision}")).await?)
            }
            Step::Scanner(slot, ms) => {
                format!("{:?}", store.take_duty(watched, self::slot(*slot), *ms, false).await?)
            }
            Step::Touch(name) => {
                let found = store.read(&[key(name)], &CAPTURE).await?;
                format!("{:?}", found.iter().map(|one| (one.life, &one.copy)).collect::<Vec<_>>())
            }
            Step::Returned(name) => {
                format!("{}", store.write_back_expired(watched, &key(name), DEADLINE).await?)
            }
            Step::WriteBack(name) => {
                // By the server's own clock, decades from now.
                format!("{:?}", store.write_back(&key(name), DEADLINE, b"\x02value").await?)
            }
            other => unreachable!("{other:?} is made elsewhere"),
        })
    }
}

fn slot(number: u8) -> SlotId {
    SlotId::from_bytes(&bytes(number)).expect("a slot has eight bytes")
}

pub(super) fn rows() -> Vec<Row> {
    [notes(), enrolments(), looks_and_verdicts(), policies(), scanners(), keys()].concat()
}

const FIRST: Spot = Some((0, 0));

/// At the first canary; it expires in 100 ms.
fn enrolled() -> [Step; 1] {
    [Step::Enrol("a", FIRST)]
}

fn expired() -> [Step; 2] {
    [Step::Enrol("a", FIRST), Step::Wait(200)]
}

fn notes() -> Vec<Row> {
    let (first, second) = (Some((0, 1)), Some((0, 2)));
    let fired = [&expired()[..], &[Step::Judge("a", Some((1000, 0)), fire(9))]].concat();
    vec![
        Row::of("record_expiries", [], note("a", first, 1)).repeat_says("[Known]"),
        Row::of("note what was enrolled", expired(), note("a", first, 1)).repeat_says("[Known]"),
        Row::of("note behind a lapse", [note("a", first, 1)], note("a", second, 2)).repeat_says("[Known]"),
        Row::of(
            "note behind two",
            [note("a", first, 1), note("a", second, 2)],
            note("a", Some((1000, 1)), 3),
        )
        .repeat_says("[Known]"),
        Row::of("note many", [], Step::Note(vec![("b", first, 1), ("a", first, 2), ("a", second, 3)]))
            .repeat_says("[Known, Known, Known]"),
        Row::of("note what another has noted", [note("a", first, 1)], note("a", first, 1)),
        Row::of("note what was recovered", fired, note("a", first, 1)).repeat_says("[Known]"),
        // There is nothing to go by but the arming.
        Row::of("note without an anchor", [], note("a", None, 1)),
        Row::of("note without an anchor what was enrolled", expired(), note("a", None, 1)),
        Row::of("note without an anchor behind a lapse", [note("a", first, 1)], note("a", None, 2)),
        Row::of(
            "note what is older than the memory",
            [
                Step::Wait(600_000),
                note("a", first, 1),
                note("b", Some((300_000, 1)), 2),
                note("b", Some((600_000, 1)), 3),
            ],
            note("a", Some((1000, 1)), 4),
        ),
    ]
}

fn enrolments() -> Vec<Row> {
    vec![
        Row::of("track_keys", [], Step::Enrol("a", FIRST)).repeat_says("[Known], next Some(102)"),
        Row::of("enrol where nothing is heard", [], Step::Enrol("a", None))
            .repeat_says("[Known], next Some(102)"),
        Row::of("enrol again", enrolled(), Step::Enrol("a", Some((1000, 0)))),
        Row::of("enrol what is older", [Step::Enrol("a", Some((1000, 0)))], Step::Enrol("a", FIRST)),
        Row::of("enrol what has expired since", [note("a", Some((0, 1)), 1)], Step::Enrol("a", FIRST)),
    ]
}

fn looks_and_verdicts() -> Vec<Row> {
    let at = Some((1000, 0));
    let judge = |deed| Step::Judge("a", at, deed);
    let behind_a_lapse = [&[note("a", Some((0, 0)), 1)][..], &expired()].concat();
    vec![
        // Whoever has taken a look and does not know has taken it all the same; it comes back by itself.
        Row::of("looks", expired(), Step::DueChecks).repeat_says(""),
        Row::of("looks that are not due", enrolled(), Step::DueChecks),
        Row::of("forget", expired(), judge(CheckAction::Forget)).repeat_says("[false]"),
        Row::of("fire", expired(), judge(fire(1))).repeat_says("[false]"),
        Row::of("fire behind a lapse", behind_a_lapse, judge(fire(2))).repeat_says("[false]"),
        Row::of("look again", expired(), judge(CheckAction::Again { at: START + 500 })),
        Row::of("judge what has changed", [Step::Enrol("a", at)], judge(fire(1))),
    ]
}

fn policies() -> Vec<Row> {
    let policy = Step::Policy;
    vec![
        Row::of("the first policy", [], policy(1)),
        Row::of("a policy of a higher revision", [policy(1)], policy(2)),
        Row::of("a policy of a lower revision", [policy(2)], policy(1)),
    ]
}

fn hold_scanner(slot: u8) -> Step {
    Step::Scanner(slot, 1000)
}

fn scanners() -> Vec<Row> {
    vec![
        // It holds from the repeat on.
        Row::of("become the scanner", [], hold_scanner(1)).repeat_acts_as(hold_scanner(1)),
        Row::of("stay the scanner", [hold_scanner(1)], hold_scanner(1)).repeat_acts_as(hold_scanner(1)),
        Row::of("become the second", [hold_scanner(2)], hold_scanner(1)).repeat_acts_as(hold_scanner(1)),
        Row::of("others are both", [hold_scanner(2), hold_scanner(3)], hold_scanner(1)),
        Row::of("leave", [hold_scanner(1)], Step::Scanner(1, 0)),
    ]
}

fn keys() -> Vec<Row> {
    let key = |words| [Step::Raw(words)];
    vec![
        Row::of("read_keys", key(&["SET", "app:t:a", "x", "PXAT", "4000000000100"]), Step::Touch("a")),
        Row::of("touch nothing", [], Step::Touch("a")),
        Row::of("write_back_expired", [], Step::Returned("a")).repeat_says("false"),
        Row::of("write back", [], Step::WriteBack("a")).repeat_says("Taken"),
        Row::of("write back over its writer's", key(&["SET", "app:t:a", "x"]), Step::WriteBack("a")),
        Row::of("write back too late", [Step::Wait(200)], Step::WriteBack("a")),
    ]
}
