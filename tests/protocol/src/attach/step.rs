//! What can happen next.

use super::Attached;
use super::rules::Rule;
use super::world::{Event, Key, Watch, World};

/// What a writer does to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    /// Writes it, with a deadline.
    Write,
    /// Writes it, without one.
    Overwrite,
    /// Puts its deadline off, or gives it one.
    Extend,
    /// Brings its deadline forward.
    Shorten,
    /// Takes its deadline away.
    Persist,
    /// Deletes it, or renames it to what no topic knows.
    Delete,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Step {
    Act(Deed),
    /// Active expiry gets round to the key, on this server.
    Reap(usize),
    Tick,
    MakeCanary(usize),
    EndCanary(usize),
    /// A listener hears what is next of a server's stream.
    Hear(usize, usize),
    HearReplica(usize),
    /// A look at what is remembered.
    Touch(usize),
    /// A scan, or an event, has it touched, whatever is remembered.
    Scan(usize),
    Judge(usize),
    Run(usize),
    End(usize),
    Gap(usize, usize),
    /// The connection breaks and heals, and nothing says so.
    Silence(usize),
    /// The operator clears the flags.
    Mute,
    /// And sets them again.
    Unmute,
    Drop(usize, usize),
    Crash(usize),
    /// The slot of the key moves to the other server.
    Move,
    /// A replica takes the place of its primary, which does not know it.
    Promote,
    /// Another server tells a listener who owns the key.
    Learn(usize),
    /// One that is late tells it who did before.
    LearnLate(usize),
}

impl Attached {
    pub(super) fn collect(&self, world: &World, steps: &mut Vec<Step>) {
        self.writer(world, steps);
        let purse = world.purse;
        if purse.ticks > 0 {
            steps.push(Step::Tick);
        }
        (0..world.nodes).for_each(|node| self.server(world, node, steps));
        match world.mute {
            None if purse.mutes > 0 => steps.push(Step::Mute),
            Some(true) => steps.push(Step::Unmute),
            _ => {}
        }
        if purse.moves > 0 {
            steps.push(Step::Move);
        }
        if purse.promotions > 0 {
            steps.push(Step::Promote);
        }
        (0..world.crowd).for_each(|who| self.listener(world, who, steps));
    }

    fn server(&self, world: &World, node: usize, steps: &mut Vec<Step>) {
        let server = &world.servers[node];
        if server.replica {
            return;
        }
        if world.is_due(node) {
            steps.push(Step::Reap(node));
        }
        if server.canary.1.is_some() {
            steps.push(Step::EndCanary(node));
        } else if world.purse.canaries > 0 {
            steps.push(Step::MakeCanary(node));
        }
    }

    fn writer(&self, world: &World, steps: &mut Vec<Step>) {
        if world.purse.writes > 0 {
            steps.push(Step::Act(Deed::Write));
        }
        if world.purse.deeds == 0 {
            return;
        }
        match world.key() {
            Key::Absent => {}
            Key::Mortal { .. } => {
                steps.extend([Deed::Extend, Deed::Persist, Deed::Delete].map(Step::Act));
                if self.scope.shorten {
                    steps.push(Step::Act(Deed::Shorten));
                }
            }
            Key::Lasting { .. } => steps.extend([Deed::Extend, Deed::Delete].map(Step::Act)),
        }
        if world.key() != Key::Absent && world.purse.writes > 0 {
            steps.push(Step::Act(Deed::Overwrite));
        }
    }

    fn listener(&self, world: &World, who: usize, steps: &mut Vec<Step>) {
        let listener = &world.listeners[who];
        let calm = (0..world.nodes).all(|node| knows_nothing(world, who, node));
        let idle = calm && listener.look.is_none();
        let choices = [
            (listener.streams[0].replica, Step::HearReplica(who)),
            (self.may_touch(world, who, world.index.watch), Step::Touch(who)),
            (self.may_touch(world, who, None) && world.index.watch.is_some(), Step::Scan(who)),
            (listener.look.is_some(), Step::Judge(who)),
            (world.index.lapses[0].is_some() && world.index.running.is_none(), Step::Run(who)),
            (world.index.running == Some(who), Step::End(who)),
            (world.purse.crashes > 0 && !(idle && world.index.running != Some(who)), Step::Crash(who)),
            (world.nodes > 1, Step::Learn(who)),
            (world.servers[0].stale && world.purse.lags > 0, Step::LearnLate(who)),
        ];
        steps.extend(choices.into_iter().filter(|(may, _)| *may).map(|(_, step)| step));
        (0..world.nodes).for_each(|node| hearing(world, who, node, steps));
    }

    /// A look at what is remembered, however early: there are two clocks. A
    /// scan, or an event, finds what is not. Several may look at once: that one
    /// leases the look saves work, and nothing depends on it.
    pub(super) fn may_touch(&self, world: &World, who: usize, watch: Option<Watch>) -> bool {
        let listener = &world.listeners[who];
        let node = self.touched_at(world, who, watch);
        let stream = &listener.streams[node];
        let heard = !stream.unsure.is_empty()
            || !listener.dropped.is_empty()
            || self.holds_elsewhere(world, who, node);
        let reason = world.index.watch.is_some() || world.key() != Key::Absent || heard;
        let anchored = !self.rules.has(Rule::LookAnchored)
            || stream.anchor.is_some() && self.is_trusted(world, who, node);
        listener.look.is_none() && anchored && reason && self.answers(world, node)
    }

    pub(super) fn play(&self, before: &World, step: Step) -> World {
        let mut world = *before;
        match step {
            Step::Act(deed) => world.act(deed, self.scope.flags),
            Step::Reap(node) => _ = world.read_key(node),
            Step::Tick => world.tick(),
            Step::MakeCanary(node) => world.make_canary(node),
            Step::EndCanary(node) => world.end_canary(node, self.scope.loud),
            Step::Hear(who, node) => self.hear(&mut world, who, node),
            Step::HearReplica(who) => self.hear_replica(&mut world, who),
            Step::Touch(who) => {
                let watch = world.index.watch;
                self.touch(&mut world, who, watch);
            }
            Step::Scan(who) => self.touch(&mut world, who, None),
            Step::Judge(who) => self.judge(&mut world, who),
            Step::Run(who) => world.index.running = Some(who),
            Step::End(_) => {
                world.index.end();
                world.judge.open -= 1;
            }
            Step::Gap(who, node) => self.gap(&mut world, who, node),
            Step::Silence(who) => world.miss(who, 0, usize::MAX),
            Step::Mute => world.mute = Some(false),
            Step::Unmute => world.mute = None,
            Step::Drop(who, node) => self.drop_hint(&mut world, who, node),
            Step::Crash(who) => self.crash(&mut world, who),
            Step::Move => world.move_slot(),
            Step::Promote => world.promote(),
            Step::Learn(who) => self.learn(&mut world, who, false),
            Step::LearnLate(who) => self.learn(&mut world, who, true),
        }
        world.pay(step);
        world.outdate(before);
        while !self.scope.runs && world.index.lapses[0].is_some() {
            world.index.end();
            world.judge.open -= 1;
        }
        world.canonical()
    }
}

/// Whether there is nothing that a broken connection could cost.
fn knows_nothing(world: &World, who: usize, node: usize) -> bool {
    world.unread(who, node).is_empty() && world.listeners[who].streams[node].anchor.is_none()
}

fn hearing(world: &World, who: usize, node: usize, steps: &mut Vec<Step>) {
    let (unread, purse) = (world.unread(who, node), world.purse);
    let canary = unread.iter().any(|event| matches!(event, Event::Canary { .. }));
    let choices = [
        (!unread.is_empty(), Step::Hear(who, node)),
        (purse.gaps > 0 && !knows_nothing(world, who, node), Step::Gap(who, node)),
        (purse.silences > 0 && canary, Step::Silence(who)),
        (purse.drops > 0 && !unread.is_empty(), Step::Drop(who, node)),
    ];
    steps.extend(choices.into_iter().filter(|(may, _)| *may).map(|(_, step)| step));
}

impl World {
    /// Whatever is written of the key came after what was asked for before.
    fn outdate(&mut self, before: &Self) {
        if self.nodes > 1 && self.index.known() != before.index.known() {
            let looks = self.listeners.iter_mut().filter_map(|listener| listener.look.as_mut());
            looks.for_each(|look| look.fresh = false);
        }
    }

    fn pay(&mut self, step: Step) {
        let purse = &mut self.purse;
        let fault = match step {
            Step::Gap(..) => &mut purse.gaps,
            Step::Silence(_) => &mut purse.silences,
            Step::Mute => &mut purse.mutes,
            Step::Drop(..) => &mut purse.drops,
            Step::Crash(_) => &mut purse.crashes,
            _ => return self.spend(step),
        };
        *fault -= 1;
        self.judge.faulty = true;
    }

    fn spend(&mut self, step: Step) {
        let purse = &mut self.purse;
        let spent = match step {
            Step::Act(Deed::Write | Deed::Overwrite) => &mut purse.writes,
            Step::Act(_) => &mut purse.deeds,
            Step::Tick => &mut purse.ticks,
            Step::Move => &mut purse.moves,
            Step::Promote => &mut purse.promotions,
            Step::LearnLate(_) => &mut purse.lags,
            Step::MakeCanary(_) => &mut purse.canaries,
            _ => return,
        };
        // After all faults, more happens than was paid for.
        *spent = spent.saturating_sub(1);
    }
}
