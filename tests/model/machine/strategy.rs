//! Random lives of a few timers.

use keylapse_wire::{DeadLetterLimits, Index, RepairTarget};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::clients::KEYS;
use super::op::{Ahead, Ask, Broken, Ending, Op, Pass, Pick, Step, When};

const DAY: u64 = 86_400_000;

/// Bounds of the dead letters, mostly tight.
pub(crate) fn letters() -> impl Strategy<Value = DeadLetterLimits> {
    let counts = prop_oneof![1..4_u64, Just(100)];
    let ages = select(vec![1000, 60_000, DAY]);
    (counts, ages, any::<bool>()).prop_map(|(count, age_ms, pause_when_full)| DeadLetterLimits {
        count,
        age_ms,
        pause_when_full,
    })
}

/// What listeners, producers and operators do.
pub(crate) fn lives() -> impl Strategy<Value = Vec<Step>> {
    steps(op())
}

/// The same, with data that breaks.
pub(crate) fn broken_lives() -> impl Strategy<Value = Vec<Step>> {
    let breaks = (0..KEYS.len(), broken()).prop_map(|(key, how)| Op::Break { key, how });
    steps(prop_oneof![7 => op(), 1 => breaks])
}

fn steps(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Vec<Step>> {
    let step = (op, prop::bool::weighted(0.15)).prop_map(|(op, lost)| vec![Step { op, lost }]);
    // By chance alone hardly any timer would lose four leases.
    let scene = prop_oneof![20 => step, 1 => (1..6_usize).prop_map(crashes)];
    vec(scene, 1..60).prop_map(|scenes| scenes.concat())
}

/// Listeners that take everything there is, and are never heard of again.
fn crashes(times: usize) -> Vec<Step> {
    let claim = |index| {
        let (limit, bytes, lease_ms) = (1000, 1 << 20, 30_000);
        Op::Claim(Ask { index, slot: 2, limit, bytes, lookahead_ms: 0, lease_ms })
    };
    let one = [claim(Index::Due), claim(Index::Quarantine), Op::Pass(Pass::Ms(30_000))];
    let one = one.map(|op| Step { op, lost: false });
    std::iter::repeat_n(one, times).flatten().collect()
}

fn op() -> impl Strategy<Value = Op> {
    let scans =
        select(vec![RepairTarget::Records, RepairTarget::States, RepairTarget::Next, RepairTarget::Slots]);
    prop_oneof![
        6 => (batch(ahead()), prop::bool::weighted(0.2))
            .prop_map(|(timers, absent)| Op::Arm { timers, absent }),
        2 => batch(0..KEYS.len()).prop_map(Op::Cancel),
        1 => ahead().prop_map(Op::Reschedule),
        10 => ask().prop_map(Op::Claim),
        3 => batch(pick()).prop_map(Op::Ack),
        5 => batch((pick(), ending())).prop_map(Op::Settle),
        2 => batch(pick()).prop_map(Op::Renew),
        10 => pass().prop_map(Op::Pass),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => scans.prop_map(Op::Repair),
        1 => (0..4_usize, prop::bool::weighted(0.3)).prop_map(|(letter, as_new)| Op::Replay { letter, as_new }),
        1 => (0..4_usize).prop_map(Op::DropLetter),
        1 => (0..3_u64).prop_map(Op::CloseSlot),
        3 => (0..12_usize).prop_map(Op::Echo),
    ]
}

fn batch<S: Strategy>(one: S) -> impl Strategy<Value = Vec<S::Value>> {
    vec(one, 1..4)
}

fn ahead() -> impl Strategy<Value = Ahead> {
    // Beyond 64 bytes a hash of the server changes its form.
    let payloads = select(vec![0, 1, 40, 100]);
    (0..KEYS.len(), when(), payloads).prop_map(|(key, when, payload)| Ahead { key, when, payload })
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        4 => Just(When::In(0)),
        3 => (1..60_u64).prop_map(When::In),
        1 => select(vec![5000, 3_600_000, DAY, 1 << 43]).prop_map(When::In),
        2 => (-2..60_i64).prop_map(When::At),
        1 => select(vec![-1_800_000_000_000, -5000, 5000, 1 << 43]).prop_map(When::At),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let indexes = prop_oneof![2 => Just(Index::Due), 1 => Just(Index::Quarantine)];
    let limits = prop_oneof![2 => Just(1000), 1 => 1..3_usize];
    let bytes = prop_oneof![4 => Just(1 << 20), 1 => 0..80_usize];
    let lookaheads = select(vec![0, 0, 10, 10, 1000]);
    let leases = prop_oneof![3 => Just(30_000), 2 => 1..30_u64];
    (indexes, 0..3_u64, limits, bytes, lookaheads, leases).prop_map(
        |(index, slot, limit, bytes, lookahead_ms, lease_ms)| Ask {
            index,
            slot,
            limit,
            bytes,
            // Nobody looks further ahead than a claim holds.
            lookahead_ms: lookahead_ms.min(lease_ms),
            lease_ms,
        },
    )
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![6 => 0..3_usize, 2 => 3..30_usize]
}

fn ending() -> impl Strategy<Value = Ending> {
    let delay = || prop_oneof![4 => 0..30_u64, 1 => select(vec![5000, 3_600_000])];
    prop_oneof![
        3 => delay().prop_map(Ending::Retry),
        2 => delay().prop_map(Ending::Snooze),
        2 => delay().prop_map(Ending::Again),
        2 => Just(Ending::Dead),
        2 => Just(Ending::Release),
    ]
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        2 => (1..2500_u64).prop_map(Pass::Micros),
        2 => (1..60_u64).prop_map(Pass::Ms),
        4 => select(vec![-1, 0, 999, 1000]).prop_map(Pass::Head),
        3 => select(vec![29_999, 30_000, 31_000]).prop_map(Pass::Ms),
        1 => select(vec![599_999, 600_000, 3_600_000, DAY]).prop_map(Pass::Ms),
    ]
}

fn broken() -> impl Strategy<Value = Broken> {
    prop_oneof![
        3 => Just(Broken::NoIndexEntry),
        2 => Just(Broken::NoRecord),
        2 => Just(Broken::NoState),
        1 => select(vec![0, 1, 8, 9, 16]).prop_map(Broken::ShortRecord),
        1 => select(vec![0, 1, 2, 14, 15, 24]).prop_map(Broken::ShortState),
        1 => Just(Broken::NewerRecord),
        1 => Just(Broken::NewerState),
    ]
}
