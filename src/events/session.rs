//! One subscribed connection, from its opening to its end.

mod canaries;

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::canaries::{Chain, Numbers};
use crate::backlog::Receiver;
use crate::connection::{Address, classify};
use crate::error::{Error, Result};
use crate::events::calls::Reads;
use crate::events::decoder::Decoded;
use crate::events::event::{Canary, Event, Gap, Touch};
use crate::events::open::{Opened, WakeUps, check_name, hear_changes, hear_wake_ups, name_of_run, open};
use crate::events::{Among, Share, Supervisor, TOUCHES};
use crate::log::{info, warn};
use crate::rounds::{Rounds, until_due};

/// A subscription that was refused is tried again after this long.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(10);
/// Dropped events are reported once in this time: in a flood there is no end of
/// them, and each report costs a sweep.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Wake-ups of partitions that ought to be heard here and are not, as a slot has just moved, are asked for again after this.
const JOIN_AGAIN: Duration = Duration::from_millis(250);

/// The partitions whose wake-ups are heard, too, or why they are refused.
type Joined = keylapse_connection::RedisResult<Result<BTreeSet<usize>>>;
/// For each attached topic, why its changes are not heard.
type Resubscribed = keylapse_connection::RedisResult<Vec<Option<String>>>;

pub(super) struct Session<'a> {
    supervisor: &'a Supervisor,
    /// Where it is connected to.
    server: Address,
    opened: Opened,
    /// What the server has of the work, and news of it.
    shares: watch::Receiver<Share>,
    share: Share,
    /// When wake-ups are asked for that ought to be heard and are not.
    join_at: Option<Instant>,
    /// Events that were dropped, and not reported yet.
    dropped: u64,
    reported: Option<Instant>,
    /// What is heard of the next canary before it is.
    canary: Canary,
    /// Why the last canary was not made.
    refused: Option<Error>,
    anchor: Anchor,
    /// Which canaries are believed.
    chain: Chain,
    /// Whether it was said that some are not.
    said: bool,
    /// The call that makes the next canary, and when it was made.
    making: Option<(Instant, BoxFuture<'static, Result<String>>)>,
    /// When the server was asked last.
    asked: Option<Instant>,
    /// When it is asked before that is due by itself.
    ask_at: Option<Instant>,
    next_canary: Instant,
    /// A canary that was asked for is missing from then on.
    missing_at: Option<Instant>,
    /// Canaries missed since the last that was heard.
    missed: usize,
    /// When the one was made that is not heard yet.
    made: Option<Instant>,
    /// When one was heard last.
    flowed: Option<Instant>,
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

/// How a session has ended, without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// No canary was heard yet.
    Never,
    /// One was heard.
    Anchored,
    /// None was heard for long, though all were made: whether another connection hears more remains to be seen.
    Silent,
}

impl<'a> Session<'a> {
    /// Connects and subscribes, within a deadline.
    pub(super) async fn open(supervisor: &'a Supervisor) -> Result<Self> {
        let source = &supervisor.source;
        let mut shares = source.share.clone();
        let share = shares.borrow_and_update().clone();
        let server = source.server.find().await?;
        let opened = open(&server, source, &share).await?;
        match source.among {
            Among::Alone => {}
            Among::Nodes(name) => {
                if let Err(error) = check_name(&opened.connection, name).await {
                    supervisor.pass(Event::Moved).await;
                    return Err(error);
                }
            }
            Among::Successors => {
                let endpoint = server.endpoint();
                let node = name_of_run(&opened.connection, &endpoint).await?;
                supervisor.pass(Event::Server { node, at: endpoint.to_string() }).await;
            }
        }
        Ok(Self {
            supervisor,
            server,
            opened,
            shares,
            share,
            join_at: None,
            dropped: 0,
            reported: None,
            canary: Canary::default(),
            refused: None,
            anchor: Anchor::Never,
            chain: Chain::default(),
            said: false,
            making: None,
            asked: None,
            ask_at: None,
            next_canary: Instant::now(),
            missing_at: None,
            missed: 0,
            made: None,
            flowed: None,
        })
    }

    /// Passes on what is heard until the connection ends.
    pub(super) async fn run(mut self, touches: &mut mpsc::Receiver<Touch>) -> Result<Ended> {
        match self.listen(touches).await {
            // A call on this connection detected the loss before the connection reported it.
            Err(error) if error.is_of_the_line() && self.anchor != Anchor::Never => Ok(Ended::Anchored),
            ended => ended,
        }
    }

    async fn listen(&mut self, touches: &mut mpsc::Receiver<Touch>) -> Result<Ended> {
        if !self.opened.ordered {
            // Answers have no place among what is heard, so attached topics hear nothing.
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
        let (mut touching, mut releasing, mut subscribing) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let mut joining = JoinSet::new();
        self.plan_joining();
        let unheard = mem::take(&mut self.opened.unheard);
        self.subscribed(unheard, &mut subscribing).await;
        let mut rounds = self.supervisor.source.rounds.clone();
        loop {
            let (urgent_at, every) = (self.urgent_at(), self.canary_every());
            tokio::select! {
                heard = next(&mut self.making, &mut self.opened.pushed) => match heard {
                    Heard::Made(asked, made) => self.made(asked, made, &mut releasing)?,
                    Heard::Pushed(Some(Decoded::Canary { tag, number, before })) => {
                        self.notice_silence().await;
                        self.heard_canary(tag, Numbers { number, before }).await;
                    }
                    Heard::Pushed(Some(Decoded::Writes)) => self.canary.writes = true,
                    Heard::Pushed(Some(Decoded::Expires)) => self.canary.expires = true,
                    Heard::Pushed(Some(Decoded::Dropped(count))) => {
                        self.dropped += count;
                        self.lose(count).await;
                    }
                    Heard::Pushed(Some(Decoded::Reloaded)) => self.reloaded().await,
                    Heard::Pushed(Some(Decoded::Moved(partition))) => self.lost_wake_ups(partition).await,
                    Heard::Pushed(Some(Decoded::Event(event))) => {
                        if matches!(event, Event::Expired(_)) {
                            self.notice_silence().await;
                        }
                        self.supervisor.pass(event).await;
                    }
                    Heard::Pushed(Some(Decoded::Disconnected) | None) => {
                        return Ok(self.ended());
                    }
                },
                Some(asked) = touches.recv(), if touching.len() < TOUCHES => {
                    let (reads, queue) = (Reads::InStream(self.opened.connection.clone()), self.opened.queue.clone());
                    let several = self.supervisor.source.is_of_several();
                    // Who asks has room for the answer, so it needs none here.
                    touching.spawn(async move {
                        queue.push_always(Decoded::Event(Event::Touched(reads.touch(asked, several).await)));
                    });
                }
                // Nobody ends these but the session: a panic in them is one here.
                Some(touched) = touching.join_next() => touched.expect("a touch that ends"),
                Some(done) = releasing.join_next() => self.released(done.expect("a canary that ends"))?,
                Some(subscribed) = subscribing.join_next() => {
                    let subscribed = subscribed.expect("a subscription that ends");
                    self.subscribed(subscribed.map_err(|error| classify("subscribing", &error))?, &mut subscribing).await;
                }
                Ok(()) = self.shares.changed() => self.shared(&mut subscribing).await,
                () = until_due(self.join_at) => self.join(&mut joining),
                Some(joined) = joining.join_next() => {
                    let joined = joined.expect("a subscription that ends");
                    self.joined(joined.map_err(|error| classify("subscribing", &error))?).await;
                }
                () = self.supervisor.source.server.left(&self.server) => return Ok(self.ended()),
                () = wake(urgent_at, self.next_canary, every, &rounds) => {
                    let idle = self.making.is_none() && releasing.is_empty();
                    if self.missing_at.is_some_and(|at| at <= Instant::now()) {
                        self.missing_at = None;
                        self.missed_canary(idle).await;
                        // Where none can be made, another connection does not change that.
                        if self.refused.is_none() && self.missed >= self.supervisor.patience() {
                            return Ok(Ended::Silent);
                        }
                    } else {
                        rounds.begin();
                        self.make_canary(idle);
                    }
                }
            }
            self.report_dropped().await;
        }
    }

    fn ended(&self) -> Ended {
        if self.anchor == Anchor::Never { Ended::Never } else { Ended::Anchored }
    }

    /// The server drops what is due while it loads its data set, and announces nothing of that.
    async fn reloaded(&mut self) {
        if self.share.canaries.is_some() {
            info!(server = %self.server, "the server has emptied or loaded its data set: what was due meanwhile is recovered");
        }
        self.lose(0).await;
        self.ask_soon();
        self.supervisor.pass(Event::Gap(Gap::Reloaded)).await;
    }

    /// Changes of attached keys were subscribed to; what is refused is tried again after a while.
    async fn subscribed(&mut self, refused: Vec<Option<String>>, subscribing: &mut JoinSet<Resubscribed>) {
        if refused.is_empty() {
            return;
        }
        if refused.iter().any(Option::is_some) {
            self.subscribe(SUBSCRIBE_AGAIN, subscribing);
        }
        self.supervisor.pass(Event::Subscribed(refused)).await;
    }

    fn subscribe(&self, after: Duration, subscribing: &mut JoinSet<Resubscribed>) {
        let mut connection = self.opened.connection.clone();
        let decoder = self.supervisor.source.decoder.clone();
        subscribing.spawn(async move {
            tokio::time::sleep(after).await;
            hear_changes(&mut connection, &decoder).await
        });
    }

    /// The server has another share of the work. Canaries of another slot are another chain; and those of a replica that
    /// has become a primary are the first.
    async fn shared(&mut self, subscribing: &mut JoinSet<Resubscribed>) {
        let share = self.shares.borrow_and_update().clone();
        let before = mem::replace(&mut self.share, share);
        self.plan_joining();
        if before.canaries == self.share.canaries {
            return;
        }
        (self.chain, self.making, self.missing_at) = (Chain::default(), None, None);
        self.next_canary = Instant::now();
        if before.canaries.is_none() {
            self.subscribe(Duration::ZERO, subscribing);
        } else if self.anchor == Anchor::Holds {
            self.anchor = Anchor::Lost;
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
    }

    /// What does not wait until the next canary is due.
    fn urgent_at(&self) -> Option<Instant> {
        [self.missing_at, self.ask_at].into_iter().flatten().min()
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

/// Wake-ups are heard of the partitions that the server holds, which change while slots of a cluster move.
impl Session<'_> {
    /// The server holds a partition no more; unless it does again by now, which it is asked.
    async fn lost_wake_ups(&mut self, partition: usize) {
        if let WakeUps::Of(heard) = &mut self.opened.wake_ups {
            heard.remove(&partition);
        }
        self.supervisor.pass(Event::Moved).await;
        self.plan_joining();
    }

    /// What is not heard of all that the server holds.
    fn unheard(&self) -> Vec<usize> {
        match &self.opened.wake_ups {
            WakeUps::Refused => Vec::new(),
            WakeUps::Of(heard) => {
                self.share.partitions.iter().copied().filter(|one| !heard.contains(one)).collect()
            }
        }
    }

    /// At once; what was asked for in vain, after a while.
    fn plan_joining(&mut self) {
        if let WakeUps::Of(heard) = &mut self.opened.wake_ups {
            heard.retain(|one| self.share.partitions.binary_search(one).is_ok());
        }
        self.join_at = (!self.unheard().is_empty()).then(Instant::now);
    }

    fn join(&mut self, joining: &mut JoinSet<Joined>) {
        self.join_at = None;
        if !joining.is_empty() {
            return; // what is missing then is seen when that has ended
        }
        let (asked, decoder) = (self.unheard(), self.supervisor.source.decoder.clone());
        let connection = self.opened.for_wake_ups.clone();
        joining.spawn(async move { hear_wake_ups(&connection, &decoder, &asked).await });
    }

    /// More wake-ups are heard from now on. What they would have said before has to be looked for.
    async fn joined(&mut self, answer: Result<BTreeSet<usize>>) {
        match (answer, &mut self.opened.wake_ups) {
            (Ok(new), WakeUps::Of(heard)) => {
                heard.extend(&new);
                if !new.is_empty() {
                    self.supervisor.pass(Event::Joined(new.into_iter().collect())).await;
                }
            }
            (Ok(_), WakeUps::Refused) => {}
            (Err(error), _) => {
                warn!(server = %self.server, %error, "no wake-ups: new timers are found by sweeps");
                self.opened.wake_ups = WakeUps::Refused;
                self.supervisor.pass(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
        if !self.unheard().is_empty() {
            self.supervisor.pass(Event::Moved).await;
            self.join_at = Some(Instant::now() + JOIN_AGAIN);
        }
    }
}

/// What comes next: an answer before what was published after it.
enum Heard {
    /// The call that makes a canary, made then, is answered.
    Made(Instant, Result<String>),
    Pushed(Option<Decoded>),
}

async fn next(
    making: &mut Option<(Instant, BoxFuture<'static, Result<String>>)>,
    pushed: &mut Receiver<Decoded>,
) -> Heard {
    let made = async {
        let Some((asked, call)) = making else { return std::future::pending().await };
        (*asked, call.await)
    };
    tokio::select! {
        biased;
        (asked, made) = made => {
            *making = None;
            Heard::Made(asked, made)
        }
        pushed = pushed.recv() => Heard::Pushed(pushed),
    }
}

/// Waits for what is urgent, or until the next canary is due.
async fn wake(urgent_at: Option<Instant>, next_canary: Instant, every: Duration, rounds: &Rounds) {
    match urgent_at {
        Some(at) => tokio::time::sleep_until(at.min(next_canary)).await,
        None => rounds.next(next_canary, every).await,
    }
}

#[cfg(test)]
mod tests;
