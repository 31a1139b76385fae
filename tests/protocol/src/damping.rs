//! Who claims among several, with every order of waking.
//!
//! Three listeners know of one deadline after another. Each wakes for it when
//! the library's own pace says so; those who wake at about the same time may
//! come in any order, and any of them may die. The first takes what is due, the
//! others find that a rival has. Complete, too: there are few states.

use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;

use crate::leadership::Leadership;

/// The most listeners.
pub const LISTENERS: usize = 3;
/// Beaten more often than this in a row, a listener waits no longer.
const LEVELS: u8 = 6;
/// Wake-ups that are no further apart may come in any order: the timer's ticks,
/// and the network.
const BLUR: Duration = Duration::from_millis(4);
/// What a dead leader may cost, by the design.
const DEAD_LEADER_COSTS: Duration = Duration::from_millis(250);

/// The model; without damping, everybody always leads.
#[derive(Clone, Copy, Debug)]
pub struct Damping {
    /// How many listeners there are at first.
    pub listeners: usize,
    /// What an empty claim is told of the last that took something.
    pub told: Told,
}

/// What an empty claim is told of the last that took something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: a head that was cancelled looks like a rival.
    Nothing,
    /// Who made it: then one that has died long ago is a rival.
    Who,
    /// Who and when: it took this one, or is none.
    When,
}

/// What the listeners think of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Crowd {
    /// How often each has been beaten in a row; none: it is dead.
    pub beaten: [Option<u8>; LISTENERS],
    /// Who took something last.
    pub by: Option<usize>,
    /// Whether somebody has stepped back for no rival, or for a dead one.
    pub wronged: bool,
}

/// What happens to one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It comes; this listener wakes first, and takes it.
    Due(usize),
    /// It is cancelled at the last moment: all who wake for it find nothing.
    Cancelled,
    /// A listener dies.
    Death(usize),
}

/// The pace of one who was beaten so often.
fn pace(beaten: u8) -> Leadership {
    let mut pace = Leadership::default();
    (0..beaten).for_each(|_| pace.lost());
    pace
}

/// How long after a deadline it wakes for it; nothing if before.
fn delay(beaten: u8) -> Duration {
    let deadline = Instant::now() + Duration::from_secs(1);
    pace(beaten).wake(deadline, Duration::from_millis(10), false).saturating_duration_since(deadline)
}

impl Crowd {
    fn alive(&self) -> impl Iterator<Item = (usize, u8)> {
        self.beaten.iter().enumerate().filter_map(|(who, beaten)| Some((who, (*beaten)?)))
    }

    /// The shortest delay of anybody.
    fn soonest(&self) -> Option<Duration> {
        self.alive().map(|(_, beaten)| delay(beaten)).min()
    }

    fn lose(&mut self, who: usize) {
        self.beaten[who] = self.beaten[who].map(|beaten| (beaten + 1).min(LEVELS));
    }
}

impl Damping {
    /// All who wake and find nothing; whether that is since somebody has taken it.
    fn come_in_vain(self, crowd: &mut Crowd, taken: bool) {
        for (who, _) in crowd.clone().alive() {
            let rival = crowd.by.is_some_and(|by| by != who);
            let beaten = match self.told {
                Told::Nothing => rival || crowd.by.is_none(),
                Told::Who => rival,
                Told::When => rival && taken,
            };
            if beaten {
                crowd.wronged |= crowd.by.is_none_or(|by| crowd.beaten[by].is_none());
                crowd.lose(who);
            }
        }
    }

    fn is_alone(crowd: &Crowd) -> bool {
        crowd.alive().count() == 1
    }
}

impl Model for Damping {
    type State = Crowd;
    type Action = Event;

    fn init_states(&self) -> Vec<Crowd> {
        let mut beaten = [None; LISTENERS];
        beaten[..self.listeners].fill(Some(0));
        // Those that are not there any more may have been the last.
        let dead = (self.listeners < LISTENERS).then_some(LISTENERS - 1);
        [None, dead].into_iter().map(|by| Crowd { beaten, by, wronged: false }).collect()
    }

    fn actions(&self, crowd: &Crowd, events: &mut Vec<Event>) {
        let Some(soonest) = crowd.soonest() else { return };
        let first = crowd.alive().filter(|(_, beaten)| delay(*beaten) <= soonest + BLUR);
        events.extend(first.map(|(who, _)| Event::Due(who)));
        events.push(Event::Cancelled);
        if !Self::is_alone(crowd) {
            events.extend(crowd.alive().map(|(who, _)| Event::Death(who)));
        }
    }

    fn next_state(&self, crowd: &Crowd, event: Event) -> Option<Crowd> {
        let mut after = *crowd;
        match event {
            Event::Due(who) => {
                after.beaten[who] = Some(0);
                after.by = Some(who);
                self.come_in_vain(&mut after, true);
            }
            Event::Cancelled => self.come_in_vain(&mut after, false),
            Event::Death(who) => after.beaten[who] = None,
        }
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("somebody wakes in time, whoever has died", |_, crowd: &Crowd| {
                crowd.soonest().is_some_and(|soonest| soonest <= DEAD_LEADER_COSTS)
            }),
            Property::always("nobody steps back but for a living rival", |_, crowd: &Crowd| !crowd.wronged),
            Property::always("whoever claimed last leads", |_, crowd: &Crowd| {
                crowd.alive().all(|(who, beaten)| crowd.by != Some(who) || beaten == 0)
            }),
            Property::sometimes("the others stand back as far as they go", |_, crowd: &Crowd| {
                let back = crowd.alive().filter(|(_, beaten)| delay(*beaten) == DEAD_LEADER_COSTS);
                back.count() == LISTENERS - 1
            }),
        ]
    }
}
