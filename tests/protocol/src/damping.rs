//! Who claims among several, with every order of waking.
//!
//! Three listeners know of one deadline after another. Each wakes for it when
//! the library's own pace says so; those who wake at about the same time may
//! come in any order, and any of them may die, or end. The first takes what is due, the
//! others find that a rival has; of those one stands by, and the others rest. Complete, too:
//! there are few states.

use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;

use crate::leadership::Leadership;

/// The most listeners.
pub const LISTENERS: usize = 3;
/// Beaten more often than this in a row, a listener waits no longer.
const LEVELS: u8 = 6;
/// Beaten, and another stands by.
const RESTS: u8 = LEVELS + 1;
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
    /// Who took something last, and has not ended.
    pub by: Option<usize>,
    /// Who said last that it stands by.
    pub standby: Option<usize>,
    /// How many are missing since those who rest have seen that somebody leads: who has died, and who stood by and leads
    /// now. From two on no more are counted.
    pub missing: u8,
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
    /// It ends, which others hear if it led or stood by.
    End(usize),
    /// All who rest have looked, and nobody stands by who is not there.
    Time,
}

/// The pace of one who was beaten so often.
fn pace(beaten: u8) -> Leadership {
    let mut pace = Leadership::default();
    (0..beaten.min(LEVELS)).for_each(|_| pace.lost());
    pace.found_nothing(beaten == RESTS);
    pace
}

/// How long after a deadline it wakes for it; nothing if before.
fn delay(beaten: u8) -> Duration {
    let deadline = Instant::now() + Duration::from_secs(1);
    pace(beaten).wake_at(deadline, Duration::from_millis(10), false).saturating_duration_since(deadline)
}

impl Crowd {
    fn alive(&self) -> impl Iterator<Item = (usize, u8)> {
        self.beaten.iter().enumerate().filter_map(|(who, beaten)| Some((who, (*beaten)?)))
    }

    /// The shortest delay of anybody.
    fn soonest(&self) -> Option<Duration> {
        self.alive().map(|(_, beaten)| delay(beaten)).min()
    }

    fn is_there(&self, who: usize) -> bool {
        self.beaten[who].is_some()
    }

    fn misses_one(&mut self) {
        self.missing = (self.missing + 1).min(2);
    }
}

impl Damping {
    /// It looks and finds nothing; whether that is since somebody has taken what was there.
    fn looks_in_vain(self, crowd: &mut Crowd, who: usize, taken: bool) {
        let Some(before) = crowd.beaten[who] else { return };
        let rival = crowd.by.filter(|by| *by != who);
        let beaten = match self.told {
            Told::Nothing => rival.is_some() || crowd.by.is_none(),
            Told::Who => rival.is_some(),
            Told::When => rival.is_some() && taken,
        };
        let mut now = before;
        if beaten {
            crowd.wronged |= crowd.by.is_none_or(|by| !crowd.is_there(by));
            now = (before + 1).min(LEVELS);
        }
        if before > 0 && rival.is_some() {
            // Only who follows is told whether another stands by.
            let another = crowd.standby.is_some_and(|standby| standby != who && Some(standby) != crowd.by);
            if !another {
                crowd.standby = Some(who);
            }
            now = if another { RESTS } else { now.min(LEVELS) };
        }
        crowd.beaten[who] = Some(if rival.is_some() || self.told == Told::Nothing { now } else { 0 });
    }

    /// All but those who rest.
    fn come_in_vain(self, crowd: &mut Crowd, taken: bool) {
        for (who, beaten) in crowd.clone().alive() {
            if beaten != RESTS {
                self.looks_in_vain(crowd, who, taken);
            }
        }
    }

    /// Everybody, also those who rest.
    fn all_look(self, crowd: &mut Crowd) {
        let taken = crowd.by.is_some_and(|by| crowd.is_there(by));
        (0..LISTENERS).for_each(|who| self.looks_in_vain(crowd, who, taken));
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
        [None, dead]
            .into_iter()
            .map(|by| Crowd { beaten, by, standby: None, missing: 0, wronged: false })
            .collect()
    }

    fn actions(&self, crowd: &Crowd, events: &mut Vec<Event>) {
        let Some(soonest) = crowd.soonest() else { return };
        let first = crowd.alive().filter(|(_, beaten)| delay(*beaten) <= soonest + BLUR);
        events.extend(first.map(|(who, _)| Event::Due(who)));
        events.extend([Event::Cancelled, Event::Time]);
        if !Self::is_alone(crowd) {
            events.extend(crowd.alive().flat_map(|(who, _)| [Event::Death(who), Event::End(who)]));
        }
    }

    fn next_state(&self, crowd: &Crowd, event: Event) -> Option<Crowd> {
        let mut after = *crowd;
        match event {
            Event::Due(who) => {
                if after.standby == Some(who) && after.beaten[who] != Some(0) {
                    after.misses_one();
                }
                after.beaten[who] = Some(0);
                after.by = Some(who);
                self.come_in_vain(&mut after, true);
            }
            Event::Cancelled => self.come_in_vain(&mut after, false),
            Event::Death(who) => {
                after.beaten[who] = None;
                after.misses_one();
            }
            Event::End(who) => {
                after.beaten[who] = None;
                let heard = after.by == Some(who) || after.standby == Some(who);
                after.by = after.by.filter(|by| *by != who);
                after.standby = after.standby.filter(|standby| *standby != who);
                if heard {
                    self.all_look(&mut after);
                }
            }
            Event::Time => {
                after.standby =
                    after.standby.filter(|standby| after.beaten[*standby].is_some_and(|beaten| beaten > 0));
                self.all_look(&mut after);
                if after.by.is_some_and(|by| after.is_there(by)) {
                    after.missing = 0;
                }
            }
        }
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("somebody wakes in time, whoever is missing", |_, crowd: &Crowd| {
                crowd.missing > 1 || crowd.soonest().is_some_and(|soonest| soonest <= DEAD_LEADER_COSTS)
            }),
            Property::always("nobody steps back but for a living rival", |_, crowd: &Crowd| !crowd.wronged),
            Property::always("whoever claimed last leads", |_, crowd: &Crowd| {
                crowd.alive().all(|(who, beaten)| crowd.by != Some(who) || beaten == 0)
            }),
            Property::sometimes("one leads, one stands by, and one rests", |_, crowd: &Crowd| {
                let at = |wanted| crowd.alive().filter(|(_, beaten)| *beaten == wanted).count();
                [0, LEVELS, RESTS].map(at) == [1; 3]
            }),
        ]
    }
}
