//! What a claimer knows and when it looks: `claimer.rs` without its errands.

use std::time::Duration;

use tokio::time::Instant;

use super::server::{Claimed, LOOKAHEAD_MS};
use crate::leadership::Leadership;

/// The least time between looks that come away empty, in microseconds.
const EMPTY_PAUSE: u64 = 5_000;

/// One listener's claimer. All times are microseconds of the simulation.
#[derive(Debug)]
pub(super) struct Listener {
    pace: Leadership,
    head: Option<Head>,
    /// The first look of all, for what was due before.
    planned: Option<u64>,
    rested: u64,
    /// The server's stamp, and when it arrived.
    reading: Option<(u64, u64)>,
    woke_for: Option<Head>,
    by_timer: bool,
    news: Option<u64>,
    /// A claim is on its way.
    pub(super) asking: bool,
    pub(super) alive: bool,
    /// Tells wake-ups that still count from those that have been put off.
    pub(super) round: u64,
    pub(super) demotions: u64,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    ms: u64,
    at: u64,
    exactly: bool,
}

/// The pace speaks of instants; all that counts is how far they are apart.
fn wake(pace: Leadership, head: Head) -> u64 {
    let base = Instant::now();
    let ahead = Duration::from_secs(3600);
    let lookahead = Duration::from_millis(LOOKAHEAD_MS);
    let at = pace.wake_at(base + ahead, lookahead, head.exactly);
    let moved = at.duration_since(base).as_micros();
    (head.at + u64::try_from(moved).unwrap_or(u64::MAX)).saturating_sub(3_600_000_000)
}

impl Listener {
    pub(super) fn new(now: u64) -> Self {
        Self {
            pace: Leadership::default(),
            head: None,
            planned: Some(now),
            rested: now,
            reading: None,
            woke_for: None,
            by_timer: false,
            news: None,
            asking: false,
            alive: true,
            round: 0,
            demotions: 0,
        }
    }

    /// The local moment at which the server has certainly reached `ms`.
    pub(super) fn when(&self, ms: u64) -> u64 {
        let (stamp, arrived) = self.reading.unwrap_or_default();
        arrived + (ms * 1000).saturating_sub(stamp)
    }

    /// Whether nobody has beaten it.
    pub(super) fn leads(&self) -> bool {
        self.pace == Leadership::default()
    }

    pub(super) fn hear(&mut self, ms: u64) {
        self.news = Some(self.news.map_or(ms, |head| head.min(ms)));
    }

    /// When to look next.
    pub(super) fn next_time(&mut self, now: u64) -> Option<u64> {
        self.read_news(now);
        let timer = self.head.map(|head| wake(self.pace, head));
        [timer, self.planned].into_iter().flatten().min()
    }

    fn read_news(&mut self, now: u64) {
        let news = self.news.take().filter(|ms| self.head.is_none_or(|head| *ms < head.ms));
        match (news, self.reading) {
            (Some(ms), Some(_)) => {
                let at = self.when(ms);
                self.head = Some(Head { ms, at: at.max(self.rested), exactly: at < self.rested });
            }
            (Some(_), None) => self.planned = Some(now),
            (None, _) => {}
        }
    }

    /// How far ahead it claims, in ms.
    pub(super) fn reach(&self) -> i64 {
        self.pace.reach(Duration::from_millis(LOOKAHEAD_MS))
    }

    /// A claim is sent.
    pub(super) fn ask(&mut self) {
        self.woke_for = self.head.take();
        self.by_timer = self.planned.take().is_none();
        self.asking = true;
    }

    /// What the answer says about the next look.
    pub(super) fn learn(&mut self, now: u64, claimed: &Claimed) {
        self.asking = false;
        self.reading = Some((claimed.stamp, now));
        let empty = claimed.taken.is_empty();
        self.head = claimed.head.map(|ms| Head { ms, at: self.when(ms), exactly: empty });
        if !empty {
            return self.pace.won();
        }
        let moved = self.woke_for.is_some_and(|woke| claimed.head.is_none_or(|ms| ms > woke.ms));
        if self.by_timer && moved && claimed.rival {
            self.pace.lost();
            self.demotions += 1;
        }
        if claimed.rival {
            self.pace.found_nothing(claimed.standby);
        } else {
            self.pace.won();
        }
        self.rested = now + EMPTY_PAUSE;
        if let Some(head) = self.head.as_mut().filter(|head| head.ms <= claimed.stamp / 1000) {
            head.at = head.at.max(self.rested);
        }
    }
}
