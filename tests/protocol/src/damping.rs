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
    /// Whether the claim says that a rival made the last one that took
    /// something: without, a head that was cancelled looks like a rival.
    pub knows_rivals: bool,
}

/// What the listeners think of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Crowd {
    /// How often each has been beaten in a row; none: it is dead.
    pub beaten: [Option<u8>; LISTENERS],
    /// Who took something last.
    pub by: Option<usize>,
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
    /// All who wake and find nothing, while somebody else claimed last.
    fn come_in_vain(self, crowd: &mut Crowd) {
        for (who, _) in crowd.clone().alive() {
            if crowd.by.is_some_and(|by| by != who) || !self.knows_rivals && crowd.by != Some(who) {
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
        vec![Crowd { beaten, by: None }]
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
                self.come_in_vain(&mut after);
            }
            Event::Cancelled => self.come_in_vain(&mut after),
            Event::Death(who) => after.beaten[who] = None,
        }
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("somebody wakes in time, whoever has died", |_, crowd: &Crowd| {
                crowd.soonest().is_some_and(|soonest| soonest <= DEAD_LEADER_COSTS)
            }),
            Property::always("a lone listener leads, once it has claimed", |_, crowd: &Crowd| {
                let mut alive = crowd.alive();
                !Damping::is_alone(crowd)
                    || alive.all(|(who, beaten)| crowd.by.is_some_and(|by| by != who) || beaten == 0)
            }),
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
