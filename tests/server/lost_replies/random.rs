//! The same, with chance in place of a table: whatever came before a call, and
//! whatever others do before its repeat, the repeat changes nothing.

use keylapse_support::{Binary, skipped_on_a_cluster};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, Index, RepairTarget};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::call::LEASE;
use super::dump::Dump;
use super::step::{Step, again, arm_now, cancel, dead, retry, settle, snooze};
use super::world::World;

const CASES: u64 = 400;

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_changes_nothing_whatever_happened() {
    if skipped_on_a_cluster("scripts cannot read the clock of this test, a key, beside those of another slot")
    {
        return;
    }
    let mut world = World::start(Binary::find().expect("a server")).await;
    for seed in 0..CASES {
        let mut chance = Chance::new(seed);
        let (given, call) = (chance.beginning(), chance.call());
        let meanwhile = chance.steps(4);
        world.begin(&given).await;
        let first = world.direct.make(&call, false).await.expect("an answer");
        world.all(&meanwhile).await;
        let before = world.dump().await;
        let repeated = world.direct.make(&call, true).await.expect("an answer to the repeat");
        let after = world.dump().await;
        let story = || {
            format!(
                "seed {seed}: {given:#?}\ncall: {call:?} said {first}\nmeanwhile: {meanwhile:#?}\nrepeat said {repeated}"
            )
        };
        before.assert_sound(&story);
        after.assert_sound(&story);
        if is_settled_by_the_first(&call, &first, &before) {
            let differences = after.but_for_leases(&call).differences(&before.but_for_leases(&call));
            assert!(differences.is_empty(), "{}\nand changed {differences:#?}", story());
        }
    }
}

/// Whether there is nothing left for the repeat to do. What found nothing to do
/// the first time may find it now, and whoever says how it shall be has the last
/// word; see [`meanwhile`](super::meanwhile).
fn is_settled_by_the_first(call: &Step, first: &str, before: &Dump) -> bool {
    match call {
        Step::Arm { timers, .. } => !first.contains("Exists") && before.knows_arming(timers[0].1),
        Step::Cancel(_) => !first.contains("NotArmed"),
        Step::Claim { .. } => !first.starts_with("[]"),
        Step::Replay { .. } => first.contains("Replayed"),
        Step::Ack(..) | Step::Settle(..) | Step::Renew(..) => true,
        _ => false,
    }
}

/// Makes up steps. Ids are never used twice.
struct Chance {
    random: StdRng,
    last_id: u8,
    tokens: Vec<u8>,
    armings: Vec<u8>,
}

impl Chance {
    fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), last_id: 0, tokens: vec![0], armings: vec![0] }
    }

    fn id(&mut self) -> u8 {
        self.last_id += 1;
        self.last_id
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())]
    }

    /// Mostly with a timer that runs: that is when things get difficult.
    fn beginning(&mut self) -> Vec<Step> {
        let mut steps = self.steps(3);
        if self.one_of(&[true, true, false]) {
            steps.extend([arm_now("a", self.arming()), self.claim()]);
            steps.extend(self.steps(2));
        }
        steps
    }

    fn steps(&mut self, most: usize) -> Vec<Step> {
        let count = self.random.random_range(0..=most);
        (0..count).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        match self.random.random_range(0..8) {
            0 => Step::Wait(self.one_of(&[1, 50, 100, LEASE])),
            1 => {
                Step::Repair(self.one_of(&[RepairTarget::Records, RepairTarget::States, RepairTarget::Next]))
            }
            _ => self.call(),
        }
    }

    fn call(&mut self) -> Step {
        let key = self.one_of(&["a", "a", "a", "b"]);
        match self.random.random_range(0..14) {
            0..=3 => self.arm(key),
            4..=6 => self.claim(),
            7 => cancel(key, self.id()),
            8 => Step::Ack(vec![key], self.token()),
            9..=11 => settle(key, self.token(), self.end()),
            12 => match self.random.random_range(0..4) {
                0 => Step::Pause(Some("why")),
                1 => Step::Pause(None),
                2 => Step::Reschedule(key, WireWhen::In(70)),
                _ => Step::Renew(key, self.token()),
            },
            _ => {
                let died = (self.one_of(&self.armings.clone()), None);
                let anew = [None, None, Some(self.arming())];
                Step::Replay { key, died, number: self.id(), anew: self.one_of(&anew) }
            }
        }
    }

    fn arm(&mut self, key: &'static str) -> Step {
        let (in_ms, absent) = (self.one_of(&[0, 0, 100]), self.one_of(&[false, false, true]));
        Step::Arm { timers: vec![(key, self.arming())], in_ms, absent, by: None }
    }

    fn arming(&mut self) -> u8 {
        let id = self.id();
        self.armings.push(id);
        id
    }

    fn claim(&mut self) -> Step {
        let token = self.id();
        self.tokens.push(token);
        Step::Claim { index: self.one_of(&[Index::Due, Index::Due, Index::Quarantine]), token }
    }

    /// Mostly the last one.
    fn token(&mut self) -> u8 {
        let last = self.tokens[self.tokens.len() - 1];
        let other = self.one_of(&self.tokens.clone());
        self.one_of(&[last, last, other])
    }

    fn end(&mut self) -> AttemptEnd {
        let arming = self.arming();
        match self.random.random_range(0..5) {
            0 => retry(),
            1 => snooze(),
            2 => again(arming),
            3 => dead(),
            _ => AttemptEnd::Release,
        }
    }
}
