//! One claim, answered at last, and turned into jobs.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::calls::Waits;
use crate::complaint::Complaint;
use crate::dispatch::{Job, LeaseWatch, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::id::{Lane, Token};
use crate::lapse::Source;
use crate::listener::Desk;
use crate::store::record::{Reason, Record, State};
use crate::store::{Claim, Claimed, ClaimedTimer, End, Held, Index, Store};
use crate::time::{MAX_DEADLINE_MS, Reading, ms_ceil};

/// Records of one claim, in bytes: reading stops there.
const CLAIM_BYTES: usize = 1 << 20;

/// What a claimer asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) index: Index,
    pub(super) lane: Lane,
    pub(super) limit: usize,
}

/// The answer to a claim, and when it was asked and answered.
pub(super) struct Taken {
    pub(super) claimed: Claimed,
    pub(super) token: Token,
    pub(super) since: Instant,
    pub(super) reading: Reading,
}

/// Claims. A claim that was sent and not answered is repeated until it is: what
/// it has taken would otherwise lie until its lease is over. After that there is
/// nothing left to be told.
///
/// # Errors
/// When nothing was taken.
pub(super) async fn take(store: &dyn Store, desk: &Desk, ask: Ask, trouble: &mut Trouble) -> Result<Taken> {
    let shape = &desk.topic.shape;
    let mut call = Claim {
        index: ask.index,
        lane: ask.lane,
        token: Token::random(),
        repeat: false,
        limit: ask.limit,
        bytes: CLAIM_BYTES,
        lookahead_ms: if ask.index == Index::Due { ms_ceil(shape.lookahead) } else { 0 },
        lease_ms: ms_ceil(shape.lease),
        letters: shape.letters,
    };
    let mut waits = Waits::default();
    let until = Instant::now() + shape.lease;
    loop {
        let since = Instant::now();
        match store.claim(&desk.at, call).await {
            Ok(claimed) => {
                let reading = desk.clock.read(since, Reading::now(claimed.stamp));
                count(desk, &claimed);
                trouble.is_over(desk);
                return Ok(Taken { claimed, token: call.token, since, reading });
            }
            Err(reason) => {
                call.repeat |= reason.maybe_done();
                trouble.say(desk, &reason);
                if !call.repeat || Instant::now() >= until {
                    return Err(reason);
                }
                tokio::time::sleep(waits.next()).await;
            }
        }
    }
}

/// What keeps one claimer from claiming.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    last: Option<ErrorKind>,
    /// What is the matter with this partition alone.
    parked: Complaint,
}

impl Trouble {
    fn say(&mut self, desk: &Desk, reason: &Error) {
        let kind = reason.kind();
        if self.last.replace(kind) != Some(kind) {
            desk.topic.stats.claim_errors.add(1);
        }
        let (topic, partition) = (&desk.topic.shape.name, desk.at.index);
        if matches!(kind, ErrorKind::WrongType | ErrorKind::Partitions | ErrorKind::WireVersion) {
            if self.parked.is_news(reason) {
                error!(%topic, partition, error = %reason, "the partition is parked until this is mended");
            }
        } else if desk.outage.is_news(reason) {
            if reason.needs_operator() {
                error!(%topic, partition, error = %reason, "nothing can be claimed until this is mended");
            } else {
                warn!(%topic, partition, error = %reason, "cannot claim; trying again");
            }
        }
    }

    fn is_over(&mut self, desk: &Desk) {
        self.last = None;
        let (topic, partition) = (&desk.topic.shape.name, desk.at.index);
        if self.parked.is_over() {
            info!(%topic, partition, "the partition is mended, and no longer parked");
        }
        if desk.outage.is_over() {
            info!(%topic, partition, "claims are answered again");
        }
    }
}

fn count(desk: &Desk, claimed: &Claimed) {
    let stats = &desk.topic.stats;
    stats.claims.add(1);
    stats.empty_claims.add(usize::from(claimed.timers.is_empty()));
    stats.claimed.add(claimed.timers.len());
    let topic = &desk.topic.shape.name;
    if claimed.orphans > 0 {
        stats.orphans.add_u64(claimed.orphans);
        warn!(%topic, count = claimed.orphans, "index entries without a record were removed: was something deleted?");
    }
    if claimed.parked > 0 {
        stats.parked.add_u64(claimed.parked);
        warn!(%topic, count = claimed.parked, "records of a newer keylapse were put off by a minute: update this program");
    }
    if claimed.buried > 0 {
        stats.dead.add_u64(claimed.buried);
        warn!(%topic, count = claimed.buried, "timers ended as dead letters: unreadable, or lost their lease four times");
    }
    if claimed.trimmed > 0 {
        stats.trimmed.add_u64(claimed.trimmed);
        error!(%topic, count = claimed.trimmed, "dead letters were trimmed: more than the topic keeps");
    }
}

impl Taken {
    /// Registers what was taken and makes it ready to start.
    pub(super) fn into_jobs(
        self,
        desk: &Arc<Desk>,
        source: Source,
        mut place: impl FnMut() -> Place,
    ) -> Vec<(Instant, Job)> {
        let Self { claimed, token, since, reading } = self;
        let latest = claimed.stamp.ms() + ms_ceil(desk.topic.shape.lookahead);
        let mut jobs = Vec::with_capacity(claimed.timers.len());
        for timer in claimed.timers {
            let held = Held { key: timer.key.clone(), token };
            match decode(timer, token) {
                Some((record, state)) if state.deadline_after(&record) <= latest => {
                    let watch = Arc::new(LeaseWatch::default());
                    let job = Job {
                        desk: desk.clone(),
                        held,
                        record,
                        state,
                        watch,
                        reading,
                        since,
                        source,
                        place: place(),
                    };
                    jobs.push((reading.when(job.deadline()), job));
                }
                Some((record, state)) if state.deadline_after(&record) < MAX_DEADLINE_MS => {
                    put_back(desk, held);
                }
                _ => bury(desk, held),
            }
        }
        desk.flights.board(jobs.iter().map(|(_, job)| (job.held.clone(), job.watch.clone())), since);
        jobs
    }
}

fn decode(timer: ClaimedTimer, token: Token) -> Option<(Record, State)> {
    let record = Record::decode(timer.record).ok()?;
    let state = match timer.state {
        None => State::first(token),
        Some(bytes) => State::decode(bytes).ok()?,
    };
    Some((record, state))
}

/// Somebody has moved the index entry ahead of the deadline. The record says
/// when; until then the timer must not sit on one of our places.
fn put_back(desk: &Arc<Desk>, held: Held) {
    warn!(
        topic = %desk.topic.shape.name, key = %Escaped(&held.key),
        "the index has this timer earlier than its record, and is put right: who writes to keylapse's names?"
    );
    desk.topic.stats.mended.add(1);
    end(desk, held, End::Release);
}

/// What the script cannot see at a glance: a deadline that never comes. Should
/// another byte be beyond us after all, the timer is not lost either.
fn bury(desk: &Arc<Desk>, held: Held) {
    debug!(topic = %desk.topic.shape.name, "a claimed record cannot be read");
    end(desk, held, End::Dead { reason: Reason::Unreadable, history: bytes::Bytes::new() });
}

/// Ends a timer that was claimed and is not run.
fn end(desk: &Arc<Desk>, held: Held, end: End) {
    desk.flights.board([(held.clone(), Arc::default())].into_iter(), Instant::now());
    desk.end(held, end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Listener;
    use crate::testing::{Fault, TestBed};
    use crate::{Done, Failure, Lapse, Topic};

    async fn succeed(_: Lapse<u32>) -> Result<Done, Failure> {
        Ok(Done)
    }

    /// A claim while these faults are ahead: whether it was answered, after how many
    /// seconds, and how often it was made.
    async fn claim(faults: &[(Fault, usize)]) -> (bool, u64, usize) {
        let bed = TestBed::new();
        let store = bed.store();
        let topic = Topic::new("a:{id}").unwrap();
        let listener = Listener::builder_on(store.clone()).on(topic, succeed).build().unwrap();
        let desk = &listener.core().desks[0];
        faults.iter().for_each(|(fault, times)| store.calls().fail("claim", *fault, *times));
        let (asked, ask) = (Instant::now(), Ask { index: Index::Due, lane: Lane::random(), limit: 1 });
        let taken = take(store, desk, ask, &mut Trouble::default()).await;
        (taken.is_ok(), asked.elapsed().as_secs(), store.calls().made("claim").len())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_has_taken_nothing_and_is_the_callers_to_ask_again() {
        let refused = Fault::Refused(ErrorKind::Unavailable);
        assert_eq!(claim(&[(refused, 1)]).await, (false, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_unanswered_is_repeated_whatever_the_repeats_hear() {
        let refused = Fault::Refused(ErrorKind::Unavailable);
        assert_eq!(claim(&[(Fault::Unanswered, 1)]).await, (true, 0, 2));
        assert_eq!(claim(&[(Fault::Unanswered, 2)]).await, (true, 0, 3));
        assert_eq!(claim(&[(Fault::Unanswered, 1), (refused, 2)]).await, (true, 0, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_lease_there_is_nothing_left_to_be_told() {
        let (answered, after, made) = claim(&[(Fault::Unanswered, 1000)]).await;
        assert!(!answered && (30..=31).contains(&after), "{after} s");
        assert!((30..=80).contains(&made), "{made} claims");
    }
}
