//! One subscribed connection, from its opening to its end.

mod canaries;
mod wake_ups;

use std::mem;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backlog::Receiver;
use crate::boottime;
use crate::connection::Address;
use crate::connection::classify;
use crate::error::{Error, Result};
use crate::events::calls::Reads;
use crate::events::chain::{Chain, Numbers};
use crate::events::decoder::Decoded;
use crate::events::event::{Canary, Event, Gap, Touch};
use crate::events::naming::{check_name, name_of_run};
use crate::events::open::{Opened, hear_changes, open};
use crate::events::share::Share;
use crate::events::supervisor::Supervisor;
use crate::events::{Among, TOUCHES};
use crate::log::{info, warn};
use crate::rounds::{Rounds, until_due};

/// A canary is due when none was heard for this long; one serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// The same where requests are saved, unless it is not known yet whether events flow.
const FEW_CANARIES_EVERY: Duration = Duration::from_secs(20);
/// Up to this much later, by chance: so that mostly one listener sends it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A canary that is not heard within this is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);
/// The first may be late: its script is loaded, and the program is busy with its start.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// A server among several from which no canary came for so much longer has missed one.
const SILENT_AFTER: Duration = Duration::from_millis(CANARY_JITTER.as_millis() as u64 + 500);
/// The server is asked for its own word on canaries again after this long, whoever makes them ...
const ASK_EVERY: Duration = Duration::from_secs(10);
/// ... and after this long where one was heard that cannot be believed.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// So many in a row are worth a line in the log: one may be late, at a busy start above all.
const MISSED: usize = 2;
/// A subscription that was refused is tried again after this long.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(10);
/// Dropped events are reported once in this time: in a flood there is no end of
/// them, and each report costs a sweep.
const REPORT_EVERY: Duration = Duration::from_secs(1);

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

    /// A server that was silent for longer than a canary takes may have been replaced meanwhile, if it can be, though no
    /// clock of this program had a chance to say so.
    async fn notice_silence(&mut self) {
        let silent_after = self.canary_every() + SILENT_AFTER;
        let was_silent =
            self.flowed.is_some_and(|at| boottime::now().saturating_duration_since(at) >= silent_after);
        if was_silent && self.supervisor.source.may_be_replaced() && self.anchor == Anchor::Holds {
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
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures::FutureExt;
    use tokio::task::unconstrained;

    use super::*;
    use crate::events::{Decoder, Question, Source};
    use crate::testing::TestBed;

    /// On this test bed, with a share of nothing.
    fn supervisor(bed: &TestBed, attached: &[String]) -> (Supervisor, mpsc::Receiver<Event>) {
        let (events, passed) = mpsc::channel(10);
        let server = bed.client().store.topology().only().expect("one server").clone();
        let decoder = Decoder::new("keylapse", 0, &[], attached, false);
        let (_share, share) = watch::channel(Share::default());
        let (prompts, rounds) = (Arc::default(), Rounds::default());
        let source =
            Source { server, among: Among::Alone, slots_move: false, decoder, share, prompts, rounds };
        (Supervisor::new(source, events), passed)
    }

    /// Else its session would look for what is due without end, and nothing else would run on the listener's thread.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_no_slots_any_more_is_asked_for_no_canary_now_or_later() {
        let bed = TestBed::new();
        let (supervisor, _passed) = supervisor(&bed, &["a:".into()]);
        let mut session = Session::open(&supervisor).await.expect("a subscription");
        session.share.canaries = Some("keylapse:{canary/0}".into());
        session.make_canary(true);
        session.share.canaries = None;
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            session.make_canary(true);
            assert!(session.next_canary > Instant::now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overflow_is_reported_at_once_and_the_next_after_a_second() {
        let bed = TestBed::new();
        let (supervisor, mut passed) = supervisor(&bed, &[]);
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

    /// Else all that are asked for would be sent to a server that answers none.
    #[tokio::test(start_paused = true)]
    async fn a_thousand_touches_are_on_their_way_and_others_wait_until_one_is_answered() {
        let bed = TestBed::new();
        let (supervisor, mut passed) = supervisor(&bed, &["a:".into()]);
        for is_subscribed in [true, false] {
            let (asking, mut asked) = mpsc::channel(2 * TOUCHES);
            let touch = Touch { id: 1, keys: vec!["a:1".into()], question: Question::Glance };
            while asking.try_send(touch.clone()).is_ok() {}
            let running = async {
                if is_subscribed {
                    let session = Session::open(&supervisor).await.expect("a subscription");
                    _ = unconstrained(session.run(&mut asked)).await;
                } else {
                    let never = std::future::pending::<()>();
                    unconstrained(supervisor.without_subscription(&mut asked, never)).await;
                }
            };
            let mut running = pin!(running);
            while asking.capacity() == 0 {
                assert!((&mut running).now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            assert_eq!(asking.capacity(), TOUCHES, "as many were taken, and none is answered");
            let mut answered = 0;
            while answered < 2 * TOUCHES {
                tokio::select! {
                    () = &mut running => panic!("it has ended"),
                    Some(event) = passed.recv() => answered += usize::from(matches!(event, Event::Touched(_))),
                }
            }
            assert_eq!(asking.capacity(), 2 * TOUCHES);
        }
    }
}
