//! A session: one subscribed connection, from its opening to its end.

mod canaries;

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::canaries::{CanaryNumbers, Chain};
use crate::backlog::BacklogReceiver;
use crate::connection::{Address, classify};
use crate::error::{Error, Result};
use crate::events::calls::KeyReader;
use crate::events::decoder::Decoded;
use crate::events::event::{Canary, Event, Gap, KeyRead};
use crate::events::open::{
    Opened, WakeUps, check_name, name_of_run, open, subscribe_changes, subscribe_wake_ups,
};
use crate::events::{Deployment, NodeAssignment, Supervisor, TOUCHES};
use crate::log::{info, warn};
use crate::rounds::{PollTimer, until_due};

/// The pause before a refused subscription is tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(10);
/// The least time between reports of dropped events, as each report costs a sweep.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The pause before wake-ups of a moved slot are subscribed to again.
const JOIN_AGAIN: Duration = Duration::from_millis(250);

/// The partitions whose subscriptions were accepted, or why the server refuses all.
type Joined = keylapse_connection::RedisResult<Result<BTreeSet<usize>>>;
/// For each attached topic, the error if its changes cannot be subscribed to.
type Resubscribed = keylapse_connection::RedisResult<Vec<Option<String>>>;

pub(super) struct Session<'a> {
    supervisor: &'a Supervisor,
    server: Address,
    opened: Opened,
    /// Changes of the server's assignment.
    shares: watch::Receiver<NodeAssignment>,
    share: NodeAssignment,
    /// When to subscribe to missing wake-ups.
    join_at: Option<Instant>,
    /// Dropped events that are not reported yet.
    dropped: u64,
    reported: Option<Instant>,
    /// The keyspace events of the next heartbeat key, which precede its expired event.
    canary: Canary,
    /// Why the server refused the last heartbeat key.
    refused: Option<Error>,
    anchor: EventFlow,
    chain: Chain,
    /// Set once a rejected heartbeat was logged.
    rejection_logged: bool,
    /// The pending call that creates a heartbeat key, and when it was made.
    making: Option<(Instant, BoxFuture<'static, Result<String>>)>,
    /// When the script was last called.
    asked: Option<Instant>,
    /// When to call the script before the next heartbeat is due.
    ask_at: Option<Instant>,
    next_canary: Instant,
    /// When the requested heartbeat counts as missing.
    missing_at: Option<Instant>,
    /// Heartbeats missed since the last one that arrived.
    missed: usize,
    /// When the heartbeat was requested that has not arrived yet.
    made: Option<Instant>,
    /// When the last heartbeat arrived.
    flowed: Option<Instant>,
}

/// The state of the event stream, as heartbeats show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventFlow {
    /// No heartbeat has arrived or was missed yet.
    Never,
    Holds,
    /// A heartbeat is missing, or the server's heartbeat counter has changed.
    Lost,
}

/// How a session ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// Before a heartbeat arrived or was missed.
    Never,
    /// After a heartbeat arrived or was missed.
    Anchored,
    /// After too many missing heartbeats whose keys were created. Another connection may receive them.
    Silent,
}

impl<'a> Session<'a> {
    /// Connects, subscribes, and checks which server answers.
    pub(super) async fn open(supervisor: &'a Supervisor) -> Result<Self> {
        let source = &supervisor.source;
        let mut shares = source.share.clone();
        let share = shares.borrow_and_update().clone();
        let server = source.server.find().await?;
        let opened = open(&server, source, &share).await?;
        match source.among {
            Deployment::Alone => {}
            Deployment::Nodes(name) => {
                if let Err(error) = check_name(&opened.connection, name).await {
                    supervisor.pass(Event::Moved).await;
                    return Err(error);
                }
            }
            Deployment::Successors => {
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
            anchor: EventFlow::Never,
            chain: Chain::default(),
            rejection_logged: false,
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

    /// Passes events on until the connection ends.
    pub(super) async fn run(mut self, touches: &mut mpsc::Receiver<KeyRead>) -> Result<SessionEnd> {
        match self.listen(touches).await {
            // A call on this connection detected the loss before the connection reported it.
            Err(error) if error.is_connection_error() && self.anchor != EventFlow::Never => {
                Ok(SessionEnd::Anchored)
            }
            ended => ended,
        }
    }

    async fn listen(&mut self, touches: &mut mpsc::Receiver<KeyRead>) -> Result<SessionEnd> {
        if !self.opened.ordered {
            // In RESP2, answers have no position among the events, so attached topics cannot use the stream.
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
        let (mut touching, mut releasing, mut subscribing) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let mut joining = JoinSet::new();
        self.plan_joining();
        let refused_changes = mem::take(&mut self.opened.refused_changes);
        self.subscribed(refused_changes, &mut subscribing).await;
        let mut rounds = self.supervisor.source.rounds.clone();
        loop {
            let (urgent_at, every) = (self.urgent_at(), self.canary_every());
            tokio::select! {
                input = next(&mut self.making, &mut self.opened.pushed) => match input {
                    SessionInput::Made(asked, made) => self.made(asked, made, &mut releasing)?,
                    SessionInput::Pushed(Some(Decoded::Canary { tag, number, before })) => {
                        self.notice_silence().await;
                        self.handle_canary(tag, CanaryNumbers { number, before }).await;
                    }
                    SessionInput::Pushed(Some(Decoded::Writes)) => self.canary.writes = true,
                    SessionInput::Pushed(Some(Decoded::Expires)) => self.canary.expires = true,
                    SessionInput::Pushed(Some(Decoded::Dropped(count))) => {
                        self.dropped += count;
                        self.lose(count).await;
                    }
                    SessionInput::Pushed(Some(Decoded::Reloaded)) => self.reloaded().await,
                    SessionInput::Pushed(Some(Decoded::Moved(partition))) => self.lost_wake_ups(partition).await,
                    SessionInput::Pushed(Some(Decoded::Event(event))) => {
                        if matches!(event, Event::Expired(_)) {
                            self.notice_silence().await;
                        }
                        self.supervisor.pass(event).await;
                    }
                    SessionInput::Pushed(Some(Decoded::Disconnected) | None) => {
                        return Ok(self.ended());
                    }
                },
                Some(asked) = touches.recv(), if touching.len() < TOUCHES => {
                    let (reads, queue) = (KeyReader::InStream(self.opened.connection.clone()), self.opened.queue.clone());
                    let several = self.supervisor.source.is_of_several();
                    // The caller has reserved room for the reply, so it exceeds the queue's limit.
                    touching.spawn(async move {
                        queue.push_always(Decoded::Event(Event::Touched(reads.read_keys(asked, several).await)));
                    });
                }
                // Only the session aborts these tasks, so a join error is a panic.
                Some(touched) = touching.join_next() => touched.expect("a key read panicked"),
                Some(done) = releasing.join_next() => self.released(done.expect("a read of a heartbeat key panicked"))?,
                Some(subscribed) = subscribing.join_next() => {
                    let subscribed = subscribed.expect("a subscription panicked");
                    self.subscribed(subscribed.map_err(|error| classify("subscribing", &error))?, &mut subscribing).await;
                }
                Ok(()) = self.shares.changed() => self.shared(&mut subscribing).await,
                () = until_due(self.join_at) => self.join(&mut joining),
                Some(joined) = joining.join_next() => {
                    let joined = joined.expect("a subscription panicked");
                    self.joined(joined.map_err(|error| classify("subscribing", &error))?).await;
                }
                () = self.supervisor.source.server.wait_until_address_changes(&self.server) => return Ok(self.ended()),
                () = wake(urgent_at, self.next_canary, every, &rounds) => {
                    let idle = self.making.is_none() && releasing.is_empty();
                    if self.missing_at.is_some_and(|at| at <= Instant::now()) {
                        self.missing_at = None;
                        self.missed_canary(idle).await;
                        // If the server refuses the heartbeat key, another connection does not help.
                        if self.refused.is_none() && self.missed >= self.supervisor.silent_canary_limit() {
                            return Ok(SessionEnd::Silent);
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

    fn ended(&self) -> SessionEnd {
        if self.anchor == EventFlow::Never { SessionEnd::Never } else { SessionEnd::Anchored }
    }

    /// Handles a load of the data set. The server announces none of the keys that expire during the load.
    async fn reloaded(&mut self) {
        if self.share.canaries.is_some() {
            info!(server = %self.server, "the server has emptied or loaded its data set: expiries from that time are recovered");
        }
        self.lose(0).await;
        self.ask_soon();
        self.supervisor.pass(Event::Gap(Gap::Reloaded)).await;
    }

    /// Passes on how the subscriptions to changes were answered. Retries refused ones after `SUBSCRIBE_AGAIN`.
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
            subscribe_changes(&mut connection, &decoder).await
        });
    }

    /// Applies a new assignment. Heartbeats of another slot, or of a replica that became a primary, start a new
    /// chain.
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
        } else if self.anchor == EventFlow::Holds {
            self.anchor = EventFlow::Lost;
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
    }

    /// Returns when to act before the next heartbeat is due.
    fn urgent_at(&self) -> Option<Instant> {
        [self.missing_at, self.ask_at].into_iter().flatten().min()
    }

    async fn report_dropped(&mut self) {
        let lately = self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        if self.dropped == 0 || lately {
            return; // a later turn of the loop reports them
        }
        self.reported = Some(Instant::now());
        warn!(count = self.dropped, "events dropped: more expired events arrive than can be processed");
        self.dropped = 0;
        self.supervisor.pass(Event::Gap(Gap::Overflow)).await;
    }
}

/// Wake-ups of the partitions that the server holds, which change while slots of a cluster move.
impl Session<'_> {
    /// Handles the end of a partition's wake-ups. Subscribes again if the partition is still assigned to the server.
    async fn lost_wake_ups(&mut self, partition: usize) {
        if let WakeUps::Of(subscribed) = &mut self.opened.wake_ups {
            subscribed.remove(&partition);
        }
        self.supervisor.pass(Event::Moved).await;
        self.plan_joining();
    }

    /// Returns the assigned partitions whose wake-ups are not subscribed to. Empty if the server refuses wake-ups.
    fn missing_wake_ups(&self) -> Vec<usize> {
        match &self.opened.wake_ups {
            WakeUps::Refused => Vec::new(),
            WakeUps::Of(subscribed) => {
                self.share.partitions.iter().copied().filter(|one| !subscribed.contains(one)).collect()
            }
        }
    }

    /// Forgets partitions that are no longer assigned, and plans to subscribe to missing wake-ups immediately.
    fn plan_joining(&mut self) {
        if let WakeUps::Of(subscribed) = &mut self.opened.wake_ups {
            subscribed.retain(|one| self.share.partitions.binary_search(one).is_ok());
        }
        self.join_at = (!self.missing_wake_ups().is_empty()).then(Instant::now);
    }

    fn join(&mut self, joining: &mut JoinSet<Joined>) {
        self.join_at = None;
        if !joining.is_empty() {
            return; // `joined` plans the rest
        }
        let (asked, decoder) = (self.missing_wake_ups(), self.supervisor.source.decoder.clone());
        let connection = self.opened.for_wake_ups.clone();
        joining.spawn(async move { subscribe_wake_ups(&connection, &decoder, &asked).await });
    }

    /// Handles the answer to a subscription to wake-ups. `Event::Joined` prompts a sweep for timers whose wake-ups
    /// were missed.
    async fn joined(&mut self, answer: Result<BTreeSet<usize>>) {
        match (answer, &mut self.opened.wake_ups) {
            (Ok(new), WakeUps::Of(subscribed)) => {
                subscribed.extend(&new);
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
        if !self.missing_wake_ups().is_empty() {
            self.supervisor.pass(Event::Moved).await;
            self.join_at = Some(Instant::now() + JOIN_AGAIN);
        }
    }
}

/// The next input of a session. An answer comes before messages that were published after it.
enum SessionInput {
    /// The answer to the call that creates a heartbeat key, and when the call was made.
    Made(Instant, Result<String>),
    Pushed(Option<Decoded>),
}

async fn next(
    making: &mut Option<(Instant, BoxFuture<'static, Result<String>>)>,
    pushed: &mut BacklogReceiver<Decoded>,
) -> SessionInput {
    let made = async {
        let Some((asked, call)) = making else { return std::future::pending().await };
        (*asked, call.await)
    };
    tokio::select! {
        biased;
        (asked, made) = made => {
            *making = None;
            SessionInput::Made(asked, made)
        }
        pushed = pushed.recv() => SessionInput::Pushed(pushed),
    }
}

/// Waits until `urgent_at`, or until the next heartbeat is due.
async fn wake(urgent_at: Option<Instant>, next_canary: Instant, every: Duration, rounds: &PollTimer) {
    match urgent_at {
        Some(at) => tokio::time::sleep_until(at.min(next_canary)).await,
        None => rounds.next(next_canary, every).await,
    }
}

#[cfg(test)]
mod tests;
