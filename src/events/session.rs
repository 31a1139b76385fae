//! A session: one subscribed connection, from its opening to its end.

mod heartbeats;

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::heartbeats::{CanaryNumbers, Chain};
use crate::backlog::BacklogReceiver;
use crate::connection::{Address, classify};
use crate::error::{Error, Result};
use crate::events::calls::KeyReader;
use crate::events::decoder::Decoded;
use crate::events::event::{Canary, Event, Gap, KeyRead};
use crate::events::open::{
    OpenSubscription, WakeUps, check_node_id, open, run_id_of, subscribe_changes, subscribe_wake_ups,
};
use crate::events::{Deployment, MAX_KEY_READS, NodeAssignment, Supervisor};
use crate::log::{info, warn};
use crate::rounds::{PollTimer, until_due};

/// The pause before refused subscriptions to changes are tried again.
const CHANGES_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The least time between reports of dropped events, as each report costs a sweep.
const DROP_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before wake-ups of a moved slot are subscribed to again.
const WAKE_UPS_RETRY_DELAY: Duration = Duration::from_millis(250);

/// The partitions whose wake-ups are subscribed to now, or why the server refuses all.
type WakeUpsAnswer = keylapse_connection::RedisResult<Result<BTreeSet<usize>>>;
/// For each attached topic, the error if its changes cannot be subscribed to.
type ChangesAnswer = keylapse_connection::RedisResult<Vec<Option<String>>>;

/// A subscribed connection to one server. It creates heartbeat keys, and reads keys of attached topics.
pub(super) struct Session<'a> {
    supervisor: &'a Supervisor,
    server: Address,
    opened: OpenSubscription,
    assignment_changes: watch::Receiver<NodeAssignment>,
    assignment: NodeAssignment,
    /// When to subscribe to wake-ups of assigned partitions that lack a subscription.
    wake_ups_due_at: Option<Instant>,
    /// The number of dropped messages that no `Gap::Overflow` has reported yet.
    unreported_drops: u64,
    drops_reported_at: Option<Instant>,
    /// Has the flags of the keyspace events that precede the next heartbeat. Its numbers are not used.
    canary_flags: Canary,
    /// Why the server refused the last heartbeat key.
    canary_refusal: Option<Error>,
    flow: EventFlow,
    chain: Chain,
    /// Set once a rejected heartbeat was logged.
    rejection_logged: bool,
    /// The call of the script that creates a heartbeat key, while it has no answer, and when it was made.
    canary_call: Option<(Instant, BoxFuture<'static, Result<String>>)>,
    /// When that script was last called, or was due while an earlier call had no answer.
    script_called_at: Option<Instant>,
    /// When to call the script before the next heartbeat is due.
    call_script_at: Option<Instant>,
    next_canary_at: Instant,
    /// When the next heartbeat counts as missing. None unless a heartbeat key was due.
    missing_at: Option<Instant>,
    /// The number of heartbeats that were missed since the last one that arrived.
    missed_canaries: usize,
    /// When this session called the script for a heartbeat that has not arrived yet. Measures its latency.
    canary_requested_at: Option<Instant>,
    /// When the last heartbeat arrived, by a clock that also runs while the process is suspended.
    last_canary_at: Option<Instant>,
}

/// The state of the event stream, as heartbeats show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventFlow {
    /// No heartbeat has arrived or was missed yet.
    Unknown,
    /// The last heartbeat arrived in time.
    Flowing,
    /// A heartbeat is missing, or the server's heartbeat counter has changed.
    Interrupted,
}

/// How a session ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The connection was lost before a heartbeat arrived or was missed.
    Early,
    /// The connection was lost after a heartbeat arrived or was missed.
    Lost,
    /// Too many heartbeats were missed whose keys were created. Another connection may receive them.
    Silent,
}

impl<'a> Session<'a> {
    /// Connects, subscribes, and checks which server answers.
    pub(super) async fn open(supervisor: &'a Supervisor) -> Result<Self> {
        let source = &supervisor.source;
        let mut assignment_changes = source.assignment.clone();
        let assignment = assignment_changes.borrow_and_update().clone();
        let server = source.server.find().await?;
        let opened = open(&server, source, &assignment).await?;
        match source.deployment {
            Deployment::Alone => {}
            Deployment::Nodes(name) => {
                if let Err(error) = check_node_id(&opened.connection, name).await {
                    supervisor.send_event(Event::Moved).await;
                    return Err(error);
                }
            }
            Deployment::Successors => {
                let endpoint = server.endpoint();
                let node = run_id_of(&opened.connection, &endpoint).await?;
                supervisor.send_event(Event::Server { node, at: endpoint.to_string() }).await;
            }
        }
        Ok(Self {
            supervisor,
            server,
            opened,
            assignment_changes,
            assignment,
            wake_ups_due_at: None,
            unreported_drops: 0,
            drops_reported_at: None,
            canary_flags: Canary::default(),
            canary_refusal: None,
            flow: EventFlow::Unknown,
            chain: Chain::default(),
            rejection_logged: false,
            canary_call: None,
            script_called_at: None,
            call_script_at: None,
            next_canary_at: Instant::now(),
            missing_at: None,
            missed_canaries: 0,
            canary_requested_at: None,
            last_canary_at: None,
        })
    }

    /// Passes events on until the connection ends.
    pub(super) async fn run(mut self, key_reads: &mut mpsc::Receiver<KeyRead>) -> Result<SessionEnd> {
        match self.listen(key_reads).await {
            // A call on this connection detected the loss before the connection reported it.
            Err(error) if error.is_connection_error() && self.flow != EventFlow::Unknown => {
                Ok(SessionEnd::Lost)
            }
            ended => ended,
        }
    }

    async fn listen(&mut self, key_reads: &mut mpsc::Receiver<KeyRead>) -> Result<SessionEnd> {
        if !self.opened.ordered {
            // In RESP2, answers have no position among the events, so attached topics cannot use the stream.
            self.supervisor.send_event(Event::Gap(Gap::Silent)).await;
        }
        let (mut reads_in_flight, mut canary_reads, mut change_subscriptions) =
            (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let mut wake_up_subscriptions = JoinSet::new();
        if matches!(&self.opened.wake_ups, WakeUps::Of(subscribed) if !subscribed.is_empty()) {
            self.supervisor.send_event(Event::Joined).await;
        }
        self.plan_wake_ups();
        let refused_changes = mem::take(&mut self.opened.refused_changes);
        self.on_changes_subscribed(refused_changes, &mut change_subscriptions).await;
        let mut rounds = self.supervisor.source.rounds.clone();
        loop {
            let (urgent_at, every) = (self.urgent_at(), self.canary_interval());
            tokio::select! {
                input = next_input(&mut self.canary_call, &mut self.opened.pushed) => match input {
                    SessionInput::CanaryMade(called_at, made) => self.on_canary_made(called_at, made, &mut canary_reads)?,
                    SessionInput::Pushed(Some(Decoded::Canary { tag, number, before })) => {
                        self.check_silence().await;
                        self.on_canary(tag, CanaryNumbers { number, before }).await;
                    }
                    SessionInput::Pushed(Some(Decoded::CanarySet)) => self.canary_flags.writes = true,
                    SessionInput::Pushed(Some(Decoded::CanaryExpire)) => self.canary_flags.expires = true,
                    SessionInput::Pushed(Some(Decoded::Dropped(count))) => {
                        self.unreported_drops += count;
                        self.break_chain(count).await;
                    }
                    SessionInput::Pushed(Some(Decoded::Reloaded)) => self.on_reloaded().await,
                    SessionInput::Pushed(Some(Decoded::Moved(partition))) => self.on_wake_ups_lost(partition).await,
                    SessionInput::Pushed(Some(Decoded::Event(event))) => {
                        if matches!(event, Event::Expired(_)) {
                            self.check_silence().await;
                        }
                        self.supervisor.send_event(event).await;
                    }
                    SessionInput::Pushed(Some(Decoded::Disconnected) | None) => {
                        return Ok(self.end_kind());
                    }
                },
                Some(read) = key_reads.recv(), if reads_in_flight.len() < MAX_KEY_READS => {
                    let (reader, queue) = (KeyReader::InStream(self.opened.connection.clone()), self.opened.queue.clone());
                    let several = self.supervisor.source.is_of_several();
                    // The caller has reserved room for the reply, so it exceeds the queue's limit.
                    reads_in_flight.spawn(async move {
                        queue.push_always(Decoded::Event(Event::KeysRead(reader.read_keys(read, several).await)));
                    });
                }
                // Only the session aborts these tasks, so a join error is a panic.
                Some(done) = reads_in_flight.join_next() => done.expect("a key read panicked"),
                Some(done) = canary_reads.join_next() => self.on_canary_call_ended(done.expect("a read of a heartbeat key panicked"))?,
                Some(answer) = change_subscriptions.join_next() => {
                    let answer = answer.expect("a subscription panicked");
                    self.on_changes_subscribed(answer.map_err(|error| classify("subscribing", &error))?, &mut change_subscriptions).await;
                }
                Ok(()) = self.assignment_changes.changed() => self.on_assignment_changed(&mut change_subscriptions).await,
                () = until_due(self.wake_ups_due_at) => self.subscribe_missing_wake_ups(&mut wake_up_subscriptions),
                Some(answer) = wake_up_subscriptions.join_next() => {
                    let answer = answer.expect("a subscription panicked");
                    self.on_wake_ups_subscribed(answer.map_err(|error| classify("subscribing", &error))?).await;
                }
                () = self.supervisor.source.server.wait_until_address_changes(&self.server) => return Ok(self.end_kind()),
                () = wait_until_due(urgent_at, self.next_canary_at, every, &rounds) => {
                    let idle = self.canary_call.is_none() && canary_reads.is_empty();
                    if self.missing_at.is_some_and(|at| at <= Instant::now()) {
                        self.missing_at = None;
                        self.on_canary_missed(idle).await;
                        // If the server refuses the heartbeat key, another connection does not help.
                        if self.canary_refusal.is_none() && self.missed_canaries >= self.supervisor.silent_canary_limit() {
                            return Ok(SessionEnd::Silent);
                        }
                    } else {
                        rounds.begin();
                        self.request_canary(idle);
                    }
                }
            }
            self.report_dropped().await;
        }
    }

    fn end_kind(&self) -> SessionEnd {
        if self.flow == EventFlow::Unknown { SessionEnd::Early } else { SessionEnd::Lost }
    }

    /// Handles an emptied data set, which each load begins with. The server does not announce keys that expire while it
    /// loads.
    async fn on_reloaded(&mut self) {
        if self.assignment.canaries.is_some() {
            info!(server = %self.server, "the server has emptied or loaded its data set: expiries from that time are recovered");
        }
        self.break_chain(0).await;
        self.call_script_soon();
        self.supervisor.send_event(Event::Gap(Gap::Reloaded)).await;
    }

    /// Handles the answers to the subscriptions to changes. Retries refused ones after `CHANGES_RETRY_DELAY`.
    async fn on_changes_subscribed(
        &mut self,
        refused: Vec<Option<String>>,
        change_subscriptions: &mut JoinSet<ChangesAnswer>,
    ) {
        if refused.is_empty() {
            return;
        }
        if refused.iter().any(Option::is_some) {
            self.subscribe_changes_after(CHANGES_RETRY_DELAY, change_subscriptions);
        }
        self.supervisor.send_event(Event::Subscribed(refused)).await;
    }

    fn subscribe_changes_after(&self, after: Duration, change_subscriptions: &mut JoinSet<ChangesAnswer>) {
        let mut connection = self.opened.connection.clone();
        let decoder = self.supervisor.source.decoder.clone();
        change_subscriptions.spawn(async move {
            tokio::time::sleep(after).await;
            subscribe_changes(&mut connection, &decoder).await
        });
    }

    /// Applies a new assignment. If the server's heartbeat counter has changed, a new chain starts: heartbeats belong to
    /// another slot, or a replica became a primary.
    async fn on_assignment_changed(&mut self, change_subscriptions: &mut JoinSet<ChangesAnswer>) {
        let assignment = self.assignment_changes.borrow_and_update().clone();
        let before = mem::replace(&mut self.assignment, assignment);
        self.plan_wake_ups();
        if before.canaries == self.assignment.canaries {
            return;
        }
        (self.chain, self.canary_call, self.missing_at) = (Chain::default(), None, None);
        self.next_canary_at = Instant::now();
        if before.canaries.is_none() {
            self.subscribe_changes_after(Duration::ZERO, change_subscriptions);
        } else if self.flow == EventFlow::Flowing {
            self.flow = EventFlow::Interrupted;
            self.supervisor.send_event(Event::Gap(Gap::Silent)).await;
        }
    }

    /// Returns the earlier of two times: when a heartbeat counts as missing, and when to call the script early.
    fn urgent_at(&self) -> Option<Instant> {
        [self.missing_at, self.call_script_at].into_iter().flatten().min()
    }

    async fn report_dropped(&mut self) {
        let lately = self.drops_reported_at.is_some_and(|at| at.elapsed() < DROP_REPORT_INTERVAL);
        if self.unreported_drops == 0 || lately {
            return; // a later turn of the loop reports them
        }
        self.drops_reported_at = Some(Instant::now());
        warn!(
            count = self.unreported_drops,
            "events dropped: more expired events arrive than can be processed"
        );
        self.unreported_drops = 0;
        self.supervisor.send_event(Event::Gap(Gap::Overflow)).await;
    }
}

/// Wake-ups of the partitions that the server holds, which change while slots of a cluster move.
impl Session<'_> {
    /// Handles a subscription to wake-ups that the server ended. Plans another one if the partition is still assigned.
    async fn on_wake_ups_lost(&mut self, partition: usize) {
        if let WakeUps::Of(subscribed) = &mut self.opened.wake_ups {
            subscribed.remove(&partition);
        }
        self.supervisor.send_event(Event::Moved).await;
        self.plan_wake_ups();
    }

    /// Returns the assigned partitions whose wake-ups are not subscribed to. Empty if the server refuses wake-ups.
    fn missing_wake_ups(&self) -> Vec<usize> {
        match &self.opened.wake_ups {
            WakeUps::Refused => Vec::new(),
            WakeUps::Of(subscribed) => {
                self.assignment.partitions.iter().copied().filter(|one| !subscribed.contains(one)).collect()
            }
        }
    }

    /// Forgets partitions that are no longer assigned, and plans to subscribe to missing wake-ups immediately.
    fn plan_wake_ups(&mut self) {
        if let WakeUps::Of(subscribed) = &mut self.opened.wake_ups {
            subscribed.retain(|one| self.assignment.partitions.binary_search(one).is_ok());
        }
        self.wake_ups_due_at = (!self.missing_wake_ups().is_empty()).then(Instant::now);
    }

    fn subscribe_missing_wake_ups(&mut self, wake_up_subscriptions: &mut JoinSet<WakeUpsAnswer>) {
        self.wake_ups_due_at = None;
        if !wake_up_subscriptions.is_empty() {
            return; // `on_wake_ups_subscribed` plans the rest
        }
        let (partitions, decoder) = (self.missing_wake_ups(), self.supervisor.source.decoder.clone());
        let connection = self.opened.for_wake_ups.clone();
        wake_up_subscriptions
            .spawn(async move { subscribe_wake_ups(&connection, &decoder, &partitions).await });
    }

    /// Handles the answer to subscriptions to wake-ups.
    async fn on_wake_ups_subscribed(&mut self, answer: Result<BTreeSet<usize>>) {
        match (answer, &mut self.opened.wake_ups) {
            (Ok(new), WakeUps::Of(subscribed)) => {
                subscribed.extend(&new);
                if !new.is_empty() {
                    self.supervisor.send_event(Event::Joined).await;
                }
            }
            (Ok(_), WakeUps::Refused) => {}
            (Err(error), _) => {
                warn!(server = %self.server, %error, "no wake-ups: new timers are found by sweeps");
                self.opened.wake_ups = WakeUps::Refused;
                self.supervisor.send_event(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
        if !self.missing_wake_ups().is_empty() {
            self.supervisor.send_event(Event::Moved).await;
            self.wake_ups_due_at = Some(Instant::now() + WAKE_UPS_RETRY_DELAY);
        }
    }
}

/// The next input of a session. The script's answer precedes the messages that were published after it.
enum SessionInput {
    /// The answer to the call that creates a heartbeat key, and when the call was made.
    CanaryMade(Instant, Result<String>),
    Pushed(Option<Decoded>),
}

async fn next_input(
    canary_call: &mut Option<(Instant, BoxFuture<'static, Result<String>>)>,
    pushed: &mut BacklogReceiver<Decoded>,
) -> SessionInput {
    let made = async {
        let Some((called_at, call)) = canary_call else { return std::future::pending().await };
        (*called_at, call.await)
    };
    tokio::select! {
        biased;
        (called_at, made) = made => {
            *canary_call = None;
            SessionInput::CanaryMade(called_at, made)
        }
        pushed = pushed.recv() => SessionInput::Pushed(pushed),
    }
}

/// Waits until `urgent_at`, or until the next heartbeat is due.
async fn wait_until_due(
    urgent_at: Option<Instant>,
    next_canary: Instant,
    every: Duration,
    rounds: &PollTimer,
) {
    match urgent_at {
        Some(at) => tokio::time::sleep_until(at.min(next_canary)).await,
        None => rounds.next(next_canary, every).await,
    }
}

#[cfg(test)]
mod tests;
