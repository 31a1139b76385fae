//! What must hold in every world.

use stateright::Property;

use super::Protocol;
use super::judge::Breach;
use super::world::{Few, Timer, World};

/// The armings that a timer is made of.
fn present(timer: &Timer) -> Few {
    let mut present = Few::default();
    [timer.rec, timer.next].into_iter().flatten().for_each(|arming| present.add(arming));
    present
}

fn each_key(world: &World, holds: impl Fn(&Timer, Few, Few) -> bool) -> bool {
    let (timers, judge) = (&world.timers, &world.judge);
    timers
        .iter()
        .zip(judge.owed)
        .zip(judge.withdrawn)
        .all(|((timer, owed), withdrawn)| holds(timer, owed, withdrawn))
}

/// A promise that is broken by a single call.
macro_rules! never {
    ($name:literal, $breach:ident) => {
        Property::always($name, |_, world: &World| world.judge.kept(Breach::$breach))
    };
}

/// The promises of the design, and what its rules say on the way to them.
pub(super) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always("P1: what was armed is there until it has ended", |_, world| {
            each_key(world, |timer, owed, _| owed.is_within(present(timer)))
        }),
        never!("P2: nothing starts before its deadline", Early),
        never!("P4: no live lease is taken", LiveLease),
        never!("P4: a stale claimant changes nothing", Stale),
        never!("P6: what is in quarantine does not run among others", Crowd),
        never!("P6: what has one lease to lose runs alone", Company),
        never!("P6: lost leases are bounded", Endless),
        never!("P6: a bystander is not buried", Bystander),
        never!("P6: what a pill has armed for its own key does not run", Heir),
        Property::always("P7: what was withdrawn does not come back", |_, world| {
            each_key(world, |timer, _, withdrawn| withdrawn.and(present(timer)).is_empty())
        }),
        never!("a repeat says what the first call did, and does nothing", Repeat),
        never!("each death leaves a letter, and each letter comes back once", Letters),
        never!("what is kept for later follows when, and only when, it should", Next),
        Property::always("what is kept for later follows once", |_, world| {
            each_key(world, |timer, _, _| timer.next.is_none() || timer.next != timer.rec)
        }),
        Property::always("everything ends once the faults do", Protocol::comes_to_rest),
    ]
}
