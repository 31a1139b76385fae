//! What can happen next.

use super::Attached;
use super::world::{Event, Key, World};

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
    /// Active expiry gets round to the key.
    Reap,
    Tick,
    MakeCanary,
    EndCanary,
    Hear(usize),
    HearReplica(usize),
    /// A look at what is remembered.
    Touch(usize),
    /// A scan, or an event, has it touched, whatever is remembered.
    Scan(usize),
    Judge(usize),
    Run(usize),
    End(usize),
    Gap(usize),
    /// The connection breaks and heals, and nothing says so.
    Silence(usize),
    /// The operator clears the flags.
    Mute,
    /// And sets them again.
    Unmute,
    Drop(usize),
    Crash(usize),
}

impl Attached {
    pub(super) fn collect(&self, world: &World, steps: &mut Vec<Step>) {
        self.writer(world, steps);
        let purse = world.purse;
        if world.is_due() {
            steps.push(Step::Reap);
        }
        if purse.ticks > 0 {
            steps.push(Step::Tick);
        }
        if world.canary.1.is_some() {
            steps.push(Step::EndCanary);
        } else if purse.canaries > 0 {
            steps.push(Step::MakeCanary);
        }
        match world.mute {
            None if purse.mutes > 0 => steps.push(Step::Mute),
            Some(true) => steps.push(Step::Unmute),
            _ => {}
        }
        (0..world.crowd).for_each(|who| self.listener(world, who, steps));
    }

    fn writer(&self, world: &World, steps: &mut Vec<Step>) {
        if world.purse.writes > 0 {
            steps.push(Step::Act(Deed::Write));
        }
        if world.purse.deeds == 0 {
            return;
        }
        match world.key {
            Key::Absent => {}
            Key::Mortal { .. } => {
                steps.extend([Deed::Extend, Deed::Persist, Deed::Delete].map(Step::Act));
                if self.scope.shorten {
                    steps.push(Step::Act(Deed::Shorten));
                }
            }
            Key::Lasting { .. } => steps.extend([Deed::Extend, Deed::Delete].map(Step::Act)),
        }
        if world.key != Key::Absent && world.purse.writes > 0 {
            steps.push(Step::Act(Deed::Overwrite));
        }
    }

    fn listener(&self, world: &World, who: usize, steps: &mut Vec<Step>) {
        let unread = world.unread(who);
        let listener = &world.listeners[who];
        let canary = unread.iter().any(|event| matches!(event, Event::Canary { .. }));
        let known = unread.is_empty() && listener.anchor.is_none();
        let idle = known && listener.look.is_none();
        let choices = [
            (!unread.is_empty(), Step::Hear(who)),
            (listener.replica, Step::HearReplica(who)),
            (self.may_touch(world, who), Step::Touch(who)),
            (self.may_touch(world, who) && world.index.watch.is_some(), Step::Scan(who)),
            (listener.look.is_some(), Step::Judge(who)),
            (world.index.lapses[0].is_some() && world.index.running.is_none(), Step::Run(who)),
            (world.index.running == Some(who), Step::End(who)),
            (world.purse.gaps > 0 && !known, Step::Gap(who)),
            (world.purse.silences > 0 && canary, Step::Silence(who)),
            (world.purse.drops > 0 && !unread.is_empty(), Step::Drop(who)),
            (world.purse.crashes > 0 && !(idle && world.index.running != Some(who)), Step::Crash(who)),
        ];
        steps.extend(choices.into_iter().filter(|(may, _)| *may).map(|(_, step)| step));
    }

    /// A look at what is remembered, however early: there are two clocks. A
    /// scan, or an event, finds what is not. Several may look at once: that one
    /// leases the look saves work, and nothing depends on it.
    pub(super) fn may_touch(&self, world: &World, who: usize) -> bool {
        let listener = &world.listeners[who];
        let reason = world.index.watch.is_some() || world.key != Key::Absent || !listener.unsure.is_empty();
        listener.look.is_none() && listener.anchor.is_some() && reason
    }

    pub(super) fn play(&self, world: &World, step: Step) -> World {
        let mut world = *world;
        match step {
            Step::Act(deed) => world.act(deed, self.scope.flags),
            Step::Reap => world.reap(),
            Step::Tick => world.tick(),
            Step::MakeCanary => world.make_canary(),
            Step::EndCanary => world.end_canary(),
            Step::Hear(who) => self.hear(&mut world, who),
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
            Step::Gap(who) => self.gap(&mut world, who),
            Step::Silence(who) => world.miss(who, usize::MAX),
            Step::Mute => world.mute = Some(false),
            Step::Unmute => world.mute = None,
            Step::Drop(who) => self.drop_hint(&mut world, who),
            Step::Crash(who) => self.crash(&mut world, who),
        }
        world.pay(step);
        while !self.scope.runs && world.index.lapses[0].is_some() {
            world.index.end();
            world.judge.open -= 1;
        }
        world.canonical()
    }
}

impl World {
    fn pay(&mut self, step: Step) {
        let purse = &mut self.purse;
        let fault = match step {
            Step::Gap(_) => &mut purse.gaps,
            Step::Silence(_) => &mut purse.silences,
            Step::Mute => &mut purse.mutes,
            Step::Drop(_) => &mut purse.drops,
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
            Step::MakeCanary => &mut purse.canaries,
            _ => return,
        };
        // After all faults, more happens than was paid for.
        *spent = spent.saturating_sub(1);
    }
}
