//! Opens a subscription in RESP3, or in RESP2 if a proxy supports nothing else. Also finds out the name of the server that
//! answers, which is part of positions in its stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylapse_connection::{PushInfo, RedisResult, Value, cmd, from_redis_value, pipe};

use crate::backlog::{self, BacklogReceiver, backlog};
use crate::connection::{Address, Endpoint, Subscription, classify, lacks_resp3};
use crate::error::{Error, ErrorKind, Result};
use crate::events::decoder::{Decoded, Decoder};
use crate::events::event::{Change, Event, Prompts};
use crate::events::{NodeAssignment, SubscriptionSource};
use crate::log::{debug, info, warn};
use crate::wire::{NodeId, fnv1a};

/// Maximum bytes of messages that wait for the session. The closure that fills the queue runs in the connection's driver
/// and must not block.
const MAX_PUSHED_BYTES: usize = 64 << 20;
/// The timeout of connecting and subscribing.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// A subscribed connection and its messages.
pub(super) struct OpenSubscription {
    /// The connection for commands. In RESP3, it is the subscribed connection.
    pub(super) connection: Subscription,
    /// The connection that is subscribed to wake-ups.
    ///
    /// A cluster node that loses a slot sends `sunsubscribe` unasked. `redis` (1.8.1) takes that for the answer to
    /// its oldest pending command. It then gives each answer to the wrong command, until none is pending. So a
    /// cluster node gets a second connection, which sends no other commands.
    pub(super) for_wake_ups: Subscription,
    pub(super) pushed: BacklogReceiver<Decoded>,
    /// The sending end of `pushed`, for answers to key reads.
    pub(super) queue: backlog::BacklogSender<Decoded>,
    /// For each attached topic, the error if its changes cannot be subscribed to.
    pub(super) refused_changes: Vec<Option<String>>,
    pub(super) wake_ups: WakeUps,
    /// True if an answer on the connection follows everything that was published before it.
    pub(super) ordered: bool,
}

/// The partitions whose wake-ups and fences are subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WakeUps {
    /// The indices of the partitions.
    Of(BTreeSet<usize>),
    /// Wake-ups are refused, or impossible in RESP2.
    Refused,
}

/// Connects and subscribes, within `OPEN_TIMEOUT`.
pub(super) async fn open(
    address: &Address,
    source: &SubscriptionSource,
    assignment: &NodeAssignment,
) -> Result<OpenSubscription> {
    let late = |_| Error::new(ErrorKind::Timeout, "subscribing: no answer within 5 s");
    let opening = subscribe(address, source, assignment);
    let opened = tokio::time::timeout(OPEN_TIMEOUT, opening).await.map_err(late)?;
    opened.map_err(|error| match classify("subscribing", &error) {
        refused if refused.kind() == ErrorKind::Permission => {
            let message = format!("{refused}; the rules are +subscribe and &{}", source.decoder.expired);
            Error::new(ErrorKind::Permission, message).with_code(refused.code())
        }
        other => other,
    })
}

async fn subscribe(
    address: &Address,
    source: &SubscriptionSource,
    assignment: &NodeAssignment,
) -> RedisResult<OpenSubscription> {
    let (queue, pushed) = backlog(MAX_PUSHED_BYTES);
    let sender = PushHandler {
        decoder: Arc::new(source.decoder.clone()),
        queue: queue.clone(),
        prompts: source.prompts.clone(),
        dropped: Arc::default(),
    };
    match subscribe_in_resp3(address, assignment, sender.clone(), source.slots_move).await {
        Err(error) if lacks_resp3(&error) => {
            let connection = subscribe_in_resp2(address, sender).await?;
            info!(server = %address, "no RESP3: subscribing in RESP2, without wake-ups");
            let (for_wake_ups, wake_ups) = (connection.clone(), WakeUps::Refused);
            let (refused_changes, ordered) = (Vec::new(), false);
            Ok(OpenSubscription {
                connection,
                for_wake_ups,
                pushed,
                queue,
                refused_changes,
                wake_ups,
                ordered,
            })
        }
        opened => {
            let (connection, for_wake_ups, refused_changes, wake_ups) = opened?;
            Ok(OpenSubscription {
                connection,
                for_wake_ups,
                pushed,
                queue,
                refused_changes,
                wake_ups,
                ordered: true,
            })
        }
    }
}

async fn subscribe_in_resp3(
    address: &Address,
    assignment: &NodeAssignment,
    sender: PushHandler,
    slots_move: bool,
) -> RedisResult<(Subscription, Subscription, Vec<Option<String>>, WakeUps)> {
    let decoder = sender.decoder.clone();
    let connect = async || {
        let sender = sender.clone();
        Subscription::in_resp3(address, move |push| sender.enqueue_push(push)).await
    };
    let mut connection = connect().await?;
    connection.subscribe(&decoder.expired).await?;
    if !decoder.patterns.is_empty() {
        subscribe_reloads(address, &connection).await?;
    }
    // A replica would announce the same changes as its primary.
    let refused_changes = match assignment.canaries {
        Some(_) => subscribe_changes(&mut connection, &decoder).await?,
        None => Vec::new(),
    };
    let for_wake_ups = if slots_move { connect().await? } else { connection.clone() };
    let wake_ups = match subscribe_wake_ups(&for_wake_ups, &decoder, &assignment.partitions).await? {
        Ok(accepted) => WakeUps::Of(accepted),
        Err(error) => {
            // A subscription without wake-ups is better than none.
            warn!(server = %address, %error, "no wake-ups: new timers are found by sweeps");
            WakeUps::Refused
        }
    };
    Ok((connection, for_wake_ups, refused_changes, wake_ups))
}

/// Has the server announce when it empties its data set, which each load begins with. The server does not announce
/// keys that expire while it loads. CLIENT TRACKING sends an invalidation of all keys then. With OPTIN, no key is
/// tracked, which costs nothing.
async fn subscribe_reloads(address: &Address, connection: &Subscription) -> RedisResult<()> {
    let answer = connection.ask(cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await.map(drop);
    if let Some(error) = refusal("CLIENT TRACKING", answer)? {
        info!(server = %address, %error, "loads of the data set are not detected: keys that expire during a load count as deleted");
    }
    Ok(())
}

/// Subscribes to the wake-ups of these partitions. Returns the partitions that were accepted, or why the server
/// refuses all. In a cluster, another node may hold some by now. Each command names one channel, as a command with
/// channels of two slots is refused.
pub(super) async fn subscribe_wake_ups(
    connection: &Subscription,
    decoder: &Decoder,
    partitions: &[usize],
) -> RedisResult<Result<BTreeSet<usize>>> {
    if partitions.is_empty() {
        return Ok(Ok(BTreeSet::new()));
    }
    let mut commands = pipe();
    for partition in partitions {
        commands.add_command(cmd("SSUBSCRIBE").arg(&decoder.wake[*partition]).clone());
    }
    let answers = connection.ask_each(&commands).await?;
    let mut accepted = BTreeSet::new();
    for (partition, answer) in partitions.iter().zip(answers) {
        match answer.extract_error() {
            Ok(_) => _ = accepted.insert(*partition),
            Err(error) if matches!(error.code(), Some("MOVED" | "ASK" | "CLUSTERDOWN")) => {}
            Err(error) if error.code().is_some() => return Ok(Err(classify("SSUBSCRIBE", &error))),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(accepted))
}

/// Subscribes to changes of attached keys. Returns, for each topic, the error if its pattern is refused. Repeated
/// calls keep the subscriptions that exist.
///
/// Heartbeat keys are subscribed to last, and only if every topic was accepted: their `set` event then proves that
/// all changes arrive.
pub(super) async fn subscribe_changes(
    connection: &mut Subscription,
    decoder: &Decoder,
) -> RedisResult<Vec<Option<String>>> {
    let Some((canaries, topics)) = decoder.patterns.split_last() else { return Ok(Vec::new()) };
    let mut refused = Vec::new();
    for pattern in topics {
        let error = refusal("PSUBSCRIBE", connection.psubscribe(pattern).await)?;
        refused.push(error.map(|error| format!("{error}; the rule is &{pattern}")));
    }
    if refused.iter().all(Option::is_none)
        && let Some(error) = refusal("PSUBSCRIBE", connection.psubscribe(canaries).await)?
    {
        info!(%error, pattern = %canaries, "cannot verify that changes of attached keys arrive");
    }
    Ok(refused)
}

/// Returns the error if the server refused a command. Any other error is one of the connection, and is the result.
fn refusal(doing: &str, answer: RedisResult<()>) -> RedisResult<Option<Error>> {
    match answer {
        Err(error) if error.code().is_some() => Ok(Some(classify(doing, &error))),
        answer => answer.map(|()| None),
    }
}

/// Subscribes in RESP2, to expired keys only: `redis` supports no SSUBSCRIBE there.
async fn subscribe_in_resp2(address: &Address, sender: PushHandler) -> RedisResult<Subscription> {
    let (channel, queue) = (sender.decoder.expired.clone(), sender.queue.clone());
    // The queue closes when its session ends, and with it the subscription.
    let ended = queue.clone();
    let closed = async move { ended.closed().await };
    let receive = move |push| sender.enqueue_push(push);
    let end = move || queue.push_always(Decoded::Disconnected);
    Subscription::in_resp2(address, &channel, receive, closed, end).await
}

/// Decodes pushed messages and adds them to the queue. Counts the messages that do not fit.
#[derive(Clone)]
struct PushHandler {
    decoder: Arc<Decoder>,
    queue: backlog::BacklogSender<Decoded>,
    /// Receives writes of keys, which do not go through the queue.
    prompts: Arc<Prompts>,
    /// Messages dropped and not reported yet.
    dropped: Arc<AtomicU64>,
}

impl PushHandler {
    /// Queues a message. After a drop, the number of dropped messages is queued before any other message.
    fn enqueue_push(&self, push: PushInfo) {
        let Some(message) = self.decoder.decode_push(push) else { return };
        if let Decoded::Event(Event::Changed(key, Change::Written)) = message {
            return self.prompts.add_changed(key);
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 && self.queue.push_again(Decoded::Dropped(dropped)) {
            self.dropped.fetch_sub(dropped, Ordering::Relaxed);
        }
        let missing = self.dropped.load(Ordering::Relaxed) > 0;
        if missing || !self.queue.push(message) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns an error unless the server is this node of the cluster. If the user may not run CLUSTER MYID, the cluster's map
/// is trusted.
pub(super) async fn check_node_id(connection: &Subscription, node: NodeId) -> Result<()> {
    match connection.call("asking a cluster node for its ID", cmd("CLUSTER").arg("MYID")).await {
        Ok(Value::BulkString(name)) if name == node.as_bytes() => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Unavailable, "another node of the cluster has this address now")),
        Err(error) if error.code().is_some() => {
            debug!(%error, "a cluster node does not return its ID: trusting the cluster's map");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Returns the run ID of a server that Sentinel names, which changes with each start. If the user may not run INFO,
/// returns a name made of its address, which its successor does not share.
pub(super) async fn run_id_of(connection: &Subscription, at: &Endpoint) -> Result<NodeId> {
    let info = match connection.call("asking a server for its run ID", cmd("INFO").arg("server")).await {
        Ok(info) => info,
        Err(error) if error.code().is_some() => {
            debug!(%error, server = %at, "a server does not return its run ID: using its address");
            Value::Nil
        }
        Err(error) => return Err(error),
    };
    let text: String = from_redis_value(info).unwrap_or_default();
    let run = text.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim);
    let named = run.and_then(|run| NodeId::new(run.as_bytes())).filter(NodeId::is_named);
    Ok(named.unwrap_or_else(|| name_of_address(at)))
}

fn name_of_address(at: &Endpoint) -> NodeId {
    let text = at.to_string();
    let digest = || format!("{:016x}", fnv1a(text.bytes()));
    NodeId::new(text.as_bytes()).or_else(|| NodeId::new(digest().as_bytes())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use keylapse_connection::{PushKind, Value};

    use super::*;

    #[tokio::test]
    async fn the_number_of_dropped_messages_is_queued_before_later_messages() {
        let (queue, mut pushed) = backlog(40_000);
        let decoder = Arc::new(Decoder::new("keylapse", 0, &[], &[], false));
        let sender = PushHandler { decoder, queue, prompts: Arc::default(), dropped: Arc::default() };
        let key = |key: u8| vec![key; 4000];
        let push = |keys: std::ops::Range<u8>| {
            for one in keys {
                let data = [b"__keyevent@0__:expired".to_vec(), key(one)].map(Value::BulkString).into();
                sender.enqueue_push(PushInfo { kind: PushKind::Message, data });
            }
        };
        let expired = |one: u8| Some(Decoded::Event(Event::Expired(key(one).into())));
        push(0..12);
        // The number is queued once half of the queue is free. Otherwise each key that is taken would end one gap and
        // begin the next.
        for one in 0..9 {
            assert_eq!(pushed.recv().await, expired(one));
            if one == 2 {
                push(12..13);
            }
        }
        assert!(pushed.is_empty(), "all others were dropped");
        push(20..22);
        assert_eq!(pushed.recv().await, Some(Decoded::Dropped(4)));
        assert_eq!(pushed.recv().await, expired(20));
    }

    #[test]
    fn an_address_is_a_name_and_a_long_one_is_its_digest() {
        let at = |host: &str| Endpoint::Tcp { host: host.into(), port: 6379 };
        assert_eq!(name_of_address(&at("redis-1")).as_bytes(), b"redis-1:6379");
        let [one, other] = ["a", "b"].map(|host| name_of_address(&at(&host.repeat(50))));
        assert!(one.is_named() && one != other);
    }
}
