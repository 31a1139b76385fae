//! The deadline timer of one partition: sleeps until something is due, claims
//! what is, and hands it on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::pace::Pace;
use super::take::{Ask, Taken, Trouble, take};
use crate::calls::Waits;
use crate::dispatch::{Place, Starter};
use crate::id::Lane;
use crate::lapse::Source;
use crate::listener::{Desk, Touches};
use crate::stop::Stopped;
use crate::store::{Index, MAX_BATCH, Store};
use crate::time::Reading;

/// After a claim of so many timers, its stamp is old when it arrives.
const MANY: usize = 8;
/// Between two questions for nothing but the time.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// The least time between looks that come away empty.
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// Claims for one partition.
pub(crate) struct Claimer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) starter: Starter,
    pub(crate) touches: Touches,
    lane: Lane,
    pace: Pace,
    head: Option<Head>,
    planned: Option<(Instant, Source)>,
    /// Not before this does news prompt another look.
    rested: Instant,
    /// Whether it has looked before.
    looked: bool,
    /// When it last asked for the time.
    asked: Option<Instant>,
    waits: Waits,
    trouble: Trouble,
}

/// The earliest that is known to be due.
#[derive(Clone, Copy, Debug)]
struct Head {
    ms: u64,
    at: Instant,
    /// An early look has come away empty: look at the very moment.
    exactly: bool,
}

impl Claimer {
    pub(crate) fn new(store: Arc<dyn Store>, desk: Arc<Desk>, starter: Starter, touches: Touches) -> Self {
        // What became due before we were here is what a sweep would find.
        let planned = Some((Instant::now(), Source::Sweep));
        Self {
            store,
            desk,
            starter,
            touches,
            lane: Lane::random(),
            pace: Pace::default(),
            head: None,
            planned,
            rested: Instant::now(),
            looked: false,
            asked: None,
            waits: Waits::default(),
            trouble: Trouble::default(),
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    /// Until it is asked to stop; a claim that is on its way is finished first,
    /// or what it takes would lie until its lease is over.
    pub(crate) async fn run(&mut self, mut stopped: Stopped) {
        let mut reading = None;
        loop {
            let (source, places) = tokio::select! {
                biased;
                () = stopped.asked() => return,
                look = self.next_look(reading) => look,
            };
            reading = self.tick(source, places).await.or(reading);
        }
    }

    /// Waits until it is time to look and there are places; says why it is, and
    /// how many there are.
    async fn next_look(&mut self, reading: Option<Reading>) -> (Source, Vacant) {
        loop {
            let source = self.next_time(reading).await;
            self.desk.outbox.room().await;
            let vacant = Vacant::take(&self.desk);
            if vacant.left > 0 {
                return (source, vacant);
            }
            self.desk.places.free(self.desk.topic.index).await;
        }
    }

    /// Waits until it is time to look, and says why it is.
    async fn next_time(&mut self, reading: Option<Reading>) -> Source {
        loop {
            self.read_news(reading);
            let lookahead = self.desk.topic.shape.lookahead;
            let timer =
                self.head.map(|head| (self.pace.wake(head.at, lookahead, head.exactly), Source::Timer));
            let next = [timer, self.planned].into_iter().flatten().min_by_key(|(at, _)| *at);
            match next {
                Some((at, source)) if at <= Instant::now() => return source,
                Some((at, _)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.desk.alarm.rung() => {}
                },
                None => self.desk.alarm.rung().await,
            }
        }
    }

    fn read_news(&mut self, reading: Option<Reading>) {
        let news = self.desk.alarm.take();
        if let Some((at, source)) = news.look
            && self.planned.is_none_or(|(planned, _)| at < planned)
        {
            self.planned = Some((at, source));
        }
        if let Some(ms) = news.head.filter(|ms| self.head.is_none_or(|head| *ms < head.ms)) {
            match reading {
                Some(reading) => {
                    let at = reading.when(ms);
                    self.head = Some(Head { ms, at: at.max(self.rested), exactly: at < self.rested });
                }
                // Without a reading of the server's clock only a look can tell.
                None => self.planned = Some((Instant::now(), Source::Timer)),
            }
        }
    }

    /// Looks once; the server's time, if it answered.
    async fn tick(&mut self, source: Source, vacant: Vacant) -> Option<Reading> {
        let woke_for = self.head.take();
        self.planned = None;
        let ask = Ask { index: Index::Due, lane: self.lane, limit: vacant.left };
        let Ok(taken) = take(&*self.store, &self.desk, ask, &mut self.trouble).await else {
            // Its places go back at once: other partitions may have a use for
            // them.
            self.rested = Instant::now() + self.waits.next();
            self.planned = Some((self.rested, source));
            return None;
        };
        self.waits = Waits::default();
        let reading = taken.reading;
        self.learn(&taken, woke_for, source);
        self.ask_the_time(taken.claimed.timers.len());
        self.dispatch(taken, vacant, source);
        Some(reading)
    }

    /// What the answer says about the next look.
    fn learn(&mut self, taken: &Taken, woke_for: Option<Head>, source: Source) {
        let (claimed, reading) = (&taken.claimed, taken.reading);
        self.desk.note_look(reading, claimed);
        let empty = claimed.timers.is_empty();
        let first = !std::mem::replace(&mut self.looked, true);
        self.head = claimed.heads.due.filter(|_| claimed.paused.is_none()).map(|ms| Head {
            ms,
            at: reading.when(ms),
            exactly: empty,
        });
        if !empty {
            self.pace.won();
            return;
        }
        let moved = woke_for.is_some_and(|woke| claimed.heads.due.is_none_or(|ms| ms > woke.ms));
        if source == Source::Timer && moved && claimed.rival {
            self.pace.lost();
            debug!(topic = %self.desk.topic.shape.name, pace = ?self.pace, "another listener leads");
        }
        // Should something stay due that cannot be claimed, or somebody forge
        // wake-ups, there is another look soon, but not in a hurry. The first look was
        // prompted by nobody, and must not put off what is armed right after it.
        if !first {
            self.rested = Instant::now() + EMPTY_PAUSE;
        }
        if let Some(head) = self.head.as_mut().filter(|head| head.ms <= claimed.stamp.ms()) {
            head.at = head.at.max(self.rested);
        }
    }

    /// What takes the server long says little of the time, and a call that does nothing says it
    /// best. The answer is for the next claim.
    fn ask_the_time(&mut self, claimed: usize) {
        if claimed < MANY || self.asked.is_some_and(|asked| asked.elapsed() < ASKED_EVERY) {
            return;
        }
        let (store, desk, sent) = (self.store.clone(), self.desk.clone(), Instant::now());
        self.asked = Some(sent);
        tokio::spawn(async move {
            if let Ok(nothing) = store.peek(&[]).await {
                desk.clock.read(sent, Reading::now(nothing.stamp));
            }
        });
    }

    fn dispatch(&self, taken: Taken, mut vacant: Vacant, source: Source) {
        let jobs = taken.into_jobs(&self.desk, source, || vacant.occupy());
        if jobs.is_empty() {
            return;
        }
        if self.desk.topic.shape.triggers {
            let latest = jobs.iter().map(|(at, _)| *at).max();
            self.touches.plan(latest, jobs.iter().map(|(_, job)| job.held.key.clone()));
        }
        self.starter.hold(jobs.into_iter());
    }
}

/// Places that were taken for a claim; those that it leaves empty go back.
struct Vacant {
    desk: Arc<Desk>,
    left: usize,
}

impl Vacant {
    fn take(desk: &Arc<Desk>) -> Self {
        let left = desk.places.take(desk.topic.index, MAX_BATCH);
        Self { desk: desk.clone(), left }
    }

    fn occupy(&mut self) -> Place {
        debug_assert!(self.left > 0, "a claim never takes more than was asked for");
        self.left = self.left.saturating_sub(1);
        Place::Ordinary(self.desk.clone())
    }
}

impl Drop for Vacant {
    fn drop(&mut self) {
        self.desk.places.give_back(self.desk.topic.index, self.left);
    }
}

#[cfg(test)]
mod tests;
