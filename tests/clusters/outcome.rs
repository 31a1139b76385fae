//! What has become of a stream of timers.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use keylapse::Lapse;

use crate::load::Times;

/// Of each timer, by its number.
pub(crate) type Starts = HashMap<u32, Vec<Start>>;

/// A run of a timer's handler.
pub(crate) struct Start {
    at: SystemTime,
    /// In ms; negative: early.
    late: i64,
    /// Its lapse's id, which all attempts of one arming share.
    id: String,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) all: usize,
    /// Arms that were acknowledged by a server that was replaced.
    pub(crate) unreplicated: usize,
    /// How many ran more than once, although the call that armed them ended before they were due.
    pub(crate) doubled: usize,
    /// How many of these began when nothing was wrong.
    unexplained: usize,
    /// In ms, sorted.
    late: Vec<i64>,
}

impl Start {
    pub(crate) fn of(lapse: &Lapse<u32>) -> Self {
        let at = SystemTime::now();
        let late = match at.duration_since(lapse.deadline()) {
            Ok(late) => late.as_millis() as i64,
            Err(early) => -1 - early.duration().as_millis() as i64,
        };
        Self { at, late, id: lapse.id() }
    }
}

impl Outcome {
    /// With so many that are gone, those whose calls took longer than their timers, and when something was wrong.
    pub(crate) fn of(starts: &Starts, unreplicated: usize, outrun: &HashSet<u32>, harm: &Times) -> Self {
        let mut late: Vec<_> = starts.values().flatten().map(|start| start.late).collect();
        late.sort_unstable();
        let is_again = |(number, all): &(&u32, &Vec<Start>)| all.len() > 1 && !outrun.contains(number);
        let again: Vec<_> = starts.iter().filter(is_again).map(|(_, all)| all).collect();
        for all in &again {
            assert!(all.iter().all(|one| one.id == all[0].id), "a second arming");
        }
        let is_explained = |first: &Start| harm.iter().any(|time| time.contains(&first.at));
        let unexplained = again.iter().filter(|all| !is_explained(&all[0])).count();
        Self { all: starts.len() + unreplicated, unreplicated, doubled: again.len(), unexplained, late }
    }

    /// How late so many of a thousand are at the most, in ms.
    fn within(&self, per_mille: usize) -> i64 {
        self.late[self.late.len() * per_mille / 1000]
    }

    pub(crate) fn median(&self) -> i64 {
        self.within(500)
    }

    /// How late the last of them is, in ms.
    pub(crate) fn latest(&self) -> i64 {
        self.late[self.late.len() - 1]
    }

    /// None is early, and none has run again without a reason. That none is lost, [`Load::end`](crate::load::Load::end)
    /// has seen.
    pub(crate) fn assert_kept(&self) {
        let (first, p99, last) = (self.late[0], self.within(990), self.latest());
        let Self { all, unreplicated, doubled, unexplained, .. } = self;
        println!("{all} timers, {doubled} doubled, late {first} to {last} ms, p99 {p99} ms");
        assert!(first >= 0, "{} ms early", -first);
        assert_eq!(*unexplained, 0, "of {doubled} that ran twice");
        assert!(unreplicated < all, "none has run");
    }
}
