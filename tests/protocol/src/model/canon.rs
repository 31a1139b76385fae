//! Worlds that differ in name only are one.
//!
//! Workers and tokens have no names that anything depends on, nor have keys
//! where both have the same part. What nobody can ask for any more is forgotten:
//! a tombstone of an arm that is not awaiting an answer, the slot of a claim
//! that was answered.

use super::scope::Scope;
use super::world::{Attempt, Deed, Few, Grave, Index, KEYS, Slot, WORKERS, Worker, World};

const ORDERS: [[usize; WORKERS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A token that holds nothing, and never will again.
const STALE: u8 = 15;

/// The world that stands for all that are like it.
pub(super) fn canonical(scope: &Scope, world: &World) -> World {
    let world = forget(world);
    let orders = if scope.workers == WORKERS { &ORDERS[..] } else { &ORDERS[..1] };
    let swaps: &[bool] = if scope.keys == KEYS && scope.pill.is_none() { &[false, true] } else { &[false] };
    let alike = swaps.iter().map(|swap| if *swap { swap_keys(&world) } else { world });
    let alike = alike.flat_map(|world| {
        let looks = [0, 1, 2].map(|worker| look(&world, worker));
        let sorted = move |order: &&[usize; WORKERS]| order.map(|worker| looks[worker]).is_sorted();
        orders.iter().filter(sorted).map(move |order| reorder(&world, *order))
    });
    alike.map(|world| rename_tokens(&world)).min().unwrap_or(world)
}

/// What a worker looks like to somebody who cannot tell tokens apart: only
/// among those who look alike is there an order to be tried.
fn look(world: &World, worker: usize) -> (Worker, Option<Few>) {
    let mut one = world.workers[worker];
    one.attempts
        .iter_mut()
        .flatten()
        .filter(|attempt| attempt.token != STALE)
        .for_each(|attempt| attempt.token = 0);
    one.asking.iter_mut().for_each(|asking| asking.token = 0);
    (one, world.lanes[worker].map(|slot| slot.keys))
}

fn forget(world: &World) -> World {
    let mut world = *world;
    for (key, timer) in world.timers.iter_mut().enumerate() {
        let mut remembered = Few::default();
        [timer.rec, timer.next].into_iter().flatten().for_each(|arming| remembered.add(arming));
        let (mut arm, mut cancel, mut replay) = (Few::default(), Few::default(), Few::default());
        match world.pending[key].map(|pending| pending.deed) {
            Some(Deed::Arm { id, .. }) => {
                arm.add(id);
                remembered.add(id);
            }
            Some(Deed::Cancel { id }) => cancel.add(id),
            Some(Deed::Replay { id, .. }) => replay.add(id),
            None => {}
        }
        timer.revived = timer.revived.and(replay);
        if world.replays == 0 && replay.is_empty() {
            timer.grave = Grave::default();
        }
        (timer.tomb, timer.replaced) = (timer.tomb.and(arm), timer.replaced.and(arm));
        (timer.cancelled, timer.fenced) = (timer.cancelled.and(cancel), timer.fenced.and(cancel));
        let withdrawn = &mut world.judge.withdrawn[key];
        *withdrawn = withdrawn.and(remembered);
        let own = &mut world.judge.own[key];
        *own = own.and(remembered);
    }
    forget_stale(&mut world);
    world
}

/// A token that the server has let go of will never fit again.
fn forget_stale(world: &mut World) {
    for (worker, lane) in world.workers.iter_mut().zip(&mut world.lanes) {
        let asked = worker.asking.map(|asking| asking.token);
        *lane = lane.filter(|slot| Some(slot.token) == asked);
        for (key, held) in worker.attempts.iter_mut().enumerate() {
            *held = held.map(|attempt| {
                let fits = world.timers[key].is_held_by(attempt.token);
                if fits { attempt } else { Attempt { token: STALE, attempt: 1, ..attempt } }
            });
        }
    }
}

fn reorder(world: &World, order: [usize; WORKERS]) -> World {
    let workers = order.map(|worker| world.workers[worker]);
    World { workers, lanes: order.map(|worker| world.lanes[worker]), ..*world }
}

fn swap_keys(world: &World) -> World {
    let mut other = *world;
    other.timers.reverse();
    other.pending.reverse();
    other.fresh.reverse();
    other.judge.swap_keys();
    let swapped = |keys: Few| {
        let mut out = Few::default();
        (0..2).filter(|key| keys.has(1 - key)).for_each(|key| out.add(key));
        out
    };
    for (worker, lane) in other.workers.iter_mut().zip(&mut other.lanes) {
        worker.attempts.reverse();
        *lane = lane.map(|slot| Slot { keys: swapped(slot.keys), ..slot });
        if let Some(asking) = &mut worker.asking {
            asking.first = asking.first.map(swapped);
            if asking.index == Index::Quarantine {
                asking.foremost = KEYS - 1 - asking.foremost;
            }
        }
    }
    other
}

/// Numbers tokens in the order in which they are met with.
fn rename_tokens(world: &World) -> World {
    let mut world = *world;
    let (mut names, mut last) = ([0_u8; 16], 0_u8);
    let mut rename = |token: &mut u8| {
        if *token == 0 || *token == STALE {
            return;
        }
        let name = &mut names[usize::from(*token)];
        if *name == 0 {
            last += 1;
            *name = last;
        }
        *token = *name;
    };
    world.timers.iter_mut().filter_map(|timer| timer.run.as_mut()).for_each(|run| rename(&mut run.token));
    for (worker, lane) in world.workers.iter_mut().zip(&mut world.lanes) {
        worker.attempts.iter_mut().flatten().for_each(|attempt| rename(&mut attempt.token));
        worker.asking.iter_mut().for_each(|asking| rename(&mut asking.token));
        lane.iter_mut().for_each(|slot| rename(&mut slot.token));
    }
    world
}
