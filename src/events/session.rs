//! One subscribed connection, from its opening to its end.

use std::mem;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::events::Supervisor;
use crate::events::calls::{release_canary, touch};
use crate::events::decoder::Decoded;
use crate::events::event::{Canary, Event, Gap, Touch};
use crate::events::open::{Opened, open};
use crate::log::{debug, info, warn};
use crate::rounds::Rounds;
use crate::stats::meter;

/// A canary is due when none was heard for this long; one serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// Up to this much later, by chance: so that mostly one listener sends it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A canary that is not heard within this is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);
/// The first may be late: its script is loaded, and the program is busy with its start.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// So many in a row are worth a line in the log: one may be late, at a busy start above all.
const MISSED: usize = 2;
/// Dropped events are reported once in this time: in a flood there is no end of
/// them, and each report costs a sweep.
const REPORT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Session<'a> {
    supervisor: &'a Supervisor,
    opened: Opened,
    /// Events that were dropped, and not reported yet.
    dropped: u64,
    reported: Option<Instant>,
    /// What is heard of the next canary before it is.
    canary: Canary,
    /// Why the last canary was not made.
    refused: Option<Error>,
    anchor: Anchor,
    next_canary: Instant,
    /// Canaries missed since the last that was heard.
    missed: usize,
    /// When the one was made that is not heard yet.
    made: Option<Instant>,
}

/// What is known of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    /// No canary was heard yet.
    Never,
    Holds,
    /// One was heard, and then none.
    Lost,
}

impl<'a> Session<'a> {
    /// Connects and subscribes, within a deadline.
    pub(super) async fn open(supervisor: &'a Supervisor) -> Result<Self> {
        Ok(Self {
            supervisor,
            opened: open(&supervisor.address, &supervisor.decoder).await?,
            dropped: 0,
            reported: None,
            canary: Canary::default(),
            refused: None,
            anchor: Anchor::Never,
            next_canary: Instant::now(),
            missed: 0,
            made: None,
        })
    }

    /// Passes on what is heard until the connection ends; whether the session
    /// ever was anchored.
    pub(super) async fn run(mut self, touches: &mut mpsc::Receiver<Touch>) -> Result<bool> {
        if !self.opened.ordered {
            // Answers have no place among what is heard, so attached topics hear nothing.
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
        let (mut touching, mut releasing) = (JoinSet::new(), JoinSet::new());
        let mut rounds = self.supervisor.rounds.clone();
        let mut missing_at: Option<Instant> = None;
        loop {
            tokio::select! {
                heard = self.opened.pushed.recv() => match heard {
                    Some(Decoded::Canary(number, before)) => {
                        missing_at = None;
                        self.heard_canary(number, before).await;
                    }
                    Some(Decoded::Writes) => self.canary.writes = true,
                    Some(Decoded::Expires) => self.canary.expires = true,
                    Some(Decoded::Dropped(count)) => {
                        self.dropped += count;
                        self.supervisor.pass(Event::Lost).await;
                    }
                    Some(Decoded::Event(event)) => self.supervisor.pass(event).await,
                    Some(Decoded::Disconnected) | None => return Ok(self.anchor != Anchor::Never),
                },
                Some(asked) = touches.recv() => {
                    let Opened { connection, queue, .. } = &self.opened;
                    touching.spawn(touch(asked, connection.clone(), queue.clone()));
                }
                // Nobody ends these but the session: a panic in them is one here.
                Some(touched) = touching.join_next() => touched.expect("a touch that ends"),
                Some(done) = releasing.join_next() => self.released(done.expect("a canary that ends"))?,
                () = wake(missing_at, self.next_canary, &rounds) => match missing_at.take() {
                    Some(_) => self.missed_canary(releasing.is_empty()).await,
                    None => {
                        rounds.begin();
                        self.plan_canary();
                        let within = if self.anchor == Anchor::Never { FIRST_WITHIN } else { CANARY_WITHIN };
                        missing_at = Some(Instant::now() + within);
                        if releasing.is_empty() {
                            let counter = self.supervisor.decoder.canaries.clone();
                            self.made = Some(Instant::now());
                            releasing.spawn(release_canary(counter, self.opened.connection.clone()));
                        }
                    }
                },
            }
            self.report_dropped().await;
        }
    }

    fn plan_canary(&mut self) {
        self.next_canary = Instant::now() + CANARY_EVERY + CANARY_JITTER.mul_f64(rand::random());
    }

    async fn heard_canary(&mut self, number: u64, before: u64) {
        self.plan_canary();
        self.missed = 0;
        if let Some(made) = self.made.take() {
            meter::canary(&self.supervisor.address.to_string(), made.elapsed());
        }
        let canary = Canary { number, before, ..mem::take(&mut self.canary) };
        if self.opened.ordered {
            self.supervisor.pass(Event::Canary(canary)).await;
        }
        if self.anchor != Anchor::Holds {
            info!(server = %self.supervisor.address, "expired events flow");
            self.anchor = Anchor::Holds;
            self.supervisor.pass(Event::Anchored).await;
            if !self.opened.wake_ups {
                self.supervisor.pass(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
    }

    /// What is said of it depends on whether the server has answered the call that made it.
    async fn missed_canary(&mut self, answered: bool) {
        let server = &self.supervisor.address;
        // In a flood the canary is somewhere behind, or was dropped.
        let flooded = !self.opened.pushed.is_empty() || self.dropped > 0;
        self.missed += usize::from(answered && !flooded);
        match &self.refused {
            _ if self.missed != MISSED || !answered || flooded => {}
            Some(error) => warn!(
                %server, %error,
                "no canary, so nothing tells whether expired events flow; sweeping every second"
            ),
            None => warn!(
                %server,
                "no expired events: is notify-keyspace-events set to at least Ex? Timers fire on time all the same"
            ),
        }
        self.anchor = Anchor::Lost;
        self.supervisor.pass(Event::Gap(Gap::Silent)).await;
    }

    /// A server that answers with an error may still heal; one that is a
    /// replica now, or does not answer, is left.
    fn released(&mut self, done: Result<()>) -> Result<()> {
        self.refused = None;
        let Err(error) = done else { return Ok(()) };
        let error = error.at_key(self.supervisor.decoder.canaries.as_bytes());
        if error.code().is_none_or(|code| code == "READONLY") {
            return Err(error);
        }
        debug!(%error, "canary refused");
        self.refused = Some(error);
        Ok(())
    }

    async fn report_dropped(&mut self) {
        let lately = self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        if self.dropped == 0 || lately {
            return; // the next canary comes by here in time
        }
        self.reported = Some(Instant::now());
        warn!(count = self.dropped, "events dropped: more expired events than can be looked at");
        self.dropped = 0;
        self.supervisor.pass(Event::Gap(Gap::Overflow)).await;
    }
}

/// Waits until a canary is missing, or the next one is due.
async fn wake(missing_at: Option<Instant>, next_canary: Instant, rounds: &Rounds) {
    match missing_at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => rounds.next(next_canary, CANARY_EVERY).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Decoder;
    use crate::testing::TestBed;

    #[tokio::test(start_paused = true)]
    async fn an_overflow_is_reported_at_once_and_the_next_after_a_second() {
        let (bed, (events, mut passed)) = (TestBed::new(), mpsc::channel(10));
        let address = bed.client().store.address().clone();
        let decoder = Decoder::new("keylapse", 0, &[], &[]);
        let supervisor = Supervisor { address, decoder, events, rounds: Rounds::default() };
        let mut session = Session::open(&supervisor).await.expect("a subscription");
        for (after, dropped, reported) in
            [(0, 0, false), (0, 3, true), (999, 2, false), (1, 0, true), (0, 1, false)]
        {
            tokio::time::advance(Duration::from_millis(after)).await;
            session.dropped += dropped;
            session.report_dropped().await;
            let overflow = passed.try_recv() == Ok(Event::Gap(Gap::Overflow));
            assert_eq!(overflow, reported, "{dropped} more, {after} ms later");
        }
    }
}
