//! Opening a subscription: RESP3, or RESP2 where a proxy speaks nothing else; and what the server that answers is called,
//! of which another may take the place: positions in its stream are named by that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylapse_connection::{PushInfo, RedisResult, Value, cmd, from_redis_value, pipe};

use crate::backlog::{self, Receiver, backlog};
use crate::connection::{Address, Endpoint, Subscription, classify, lacks_resp3};
use crate::error::{Error, ErrorKind, Result};
use crate::events::decoder::{Decoded, Decoder};
use crate::events::event::{Change, Event, Prompts};
use crate::events::{Share, Source};
use crate::log::{debug, info, warn};
use crate::wire::{NodeId, fnv1a};

/// Bytes of messages that may wait between the socket and the session. The closure that
/// fills the queue runs in the connection's driver and must not block.
const PUSHED: usize = 64 << 20;
/// Everything before the first canary has to be done within this.
pub(super) const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// A subscribed connection and what comes out of it.
pub(super) struct Opened {
    /// For canaries: where it can be, the very connection that is subscribed.
    pub(super) connection: Subscription,
    /// Where wake-ups are subscribed to.
    ///
    /// A server that gives a slot away says `sunsubscribe` without being asked, and `redis` (1.8.1) takes that for the answer to
    /// whatever was asked first and is not answered: then each answer goes to the next question, until none is on its
    /// way. So where slots move it is a connection of its own, on which nothing else is asked.
    pub(super) for_wake_ups: Subscription,
    pub(super) pushed: Receiver<Decoded>,
    /// The other end of `pushed`.
    pub(super) queue: backlog::Sender<Decoded>,
    /// For each attached topic why its changes are not heard, if they are refused.
    pub(super) unheard: Vec<Option<String>>,
    /// Of which partitions wake-ups and fences are heard, too.
    pub(super) wake_ups: WakeUps,
    /// Whether an answer on the connection follows what was published before it.
    pub(super) ordered: bool,
}

/// Whether wake-ups and fences are heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WakeUps {
    /// Of these partitions.
    Of(BTreeSet<usize>),
    /// There is no way to hear any.
    Refused,
}

/// Connects and subscribes, within a deadline.
pub(super) async fn open(address: &Address, source: &Source, share: &Share) -> Result<Opened> {
    let late = |_| Error::new(ErrorKind::Timeout, "subscribing: no answer within 5 s");
    let opening = subscribe(address, source, share);
    let opened = tokio::time::timeout(OPEN_WITHIN, opening).await.map_err(late)?;
    opened.map_err(|error| match classify("subscribing", &error) {
        refused if refused.kind() == ErrorKind::Permission => {
            let message = format!("{refused}; the rules are +subscribe and &{}", source.decoder.expired);
            Error::new(ErrorKind::Permission, message).with_code(refused.code())
        }
        other => other,
    })
}

async fn subscribe(address: &Address, source: &Source, share: &Share) -> RedisResult<Opened> {
    let (queue, pushed) = backlog(PUSHED);
    let sender = Sender {
        decoder: Arc::new(source.decoder.clone()),
        queue: queue.clone(),
        prompts: source.prompts.clone(),
        dropped: Arc::default(),
    };
    match in_resp3(address, share, sender.clone(), source.slots_move).await {
        Err(error) if lacks_resp3(&error) => {
            let connection = in_resp2(address, sender).await?;
            info!(server = %address, "no RESP3: subscribing in RESP2, without wake-ups");
            let (for_wake_ups, wake_ups) = (connection.clone(), WakeUps::Refused);
            let (unheard, ordered) = (Vec::new(), false);
            Ok(Opened { connection, for_wake_ups, pushed, queue, unheard, wake_ups, ordered })
        }
        opened => {
            let (connection, for_wake_ups, unheard, wake_ups) = opened?;
            Ok(Opened { connection, for_wake_ups, pushed, queue, unheard, wake_ups, ordered: true })
        }
    }
}

async fn in_resp3(
    address: &Address,
    share: &Share,
    sender: Sender,
    slots_move: bool,
) -> RedisResult<(Subscription, Subscription, Vec<Option<String>>, WakeUps)> {
    let decoder = sender.decoder.clone();
    let connect = async || {
        let sender = sender.clone();
        Subscription::in_resp3(address, move |push| sender.hear(push)).await
    };
    let mut connection = connect().await?;
    connection.subscribe(&decoder.expired).await?;
    if !decoder.patterns.is_empty() {
        hear_reloads(address, &connection).await?;
    }
    // A replica tells of the same changes as its primary.
    let unheard = match share.canaries {
        Some(_) => hear_changes(&mut connection, &decoder).await?,
        None => Vec::new(),
    };
    let for_wake_ups = if slots_move { connect().await? } else { connection.clone() };
    let wake_ups = match hear_wake_ups(&for_wake_ups, &decoder, &share.partitions).await? {
        Ok(heard) => WakeUps::Of(heard),
        Err(error) => {
            // Better without wake-ups than without anything.
            warn!(server = %address, %error, "no wake-ups: new timers are found by sweeps");
            WakeUps::Refused
        }
    };
    Ok((connection, for_wake_ups, unheard, wake_ups))
}

/// Has the server say when it empties its data set, as each load begins with that: what expires while it loads, it drops
/// without a word. Clients that are tracked are told so. With OPTIN no key is tracked, and it costs nothing.
async fn hear_reloads(address: &Address, connection: &Subscription) -> RedisResult<()> {
    let answer = connection.ask(cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await.map(drop);
    if let Some(error) = refusal("CLIENT TRACKING", answer)? {
        info!(server = %address, %error, "loads of the data set are not noticed: keys that expire in one count as deleted");
    }
    Ok(())
}

/// Wake-ups of these partitions: of which they are heard now, or why they are refused. In a cluster some may be held
/// elsewhere by now. One channel a command: those of two slots are refused, though one server may have both.
pub(super) async fn hear_wake_ups(
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
    let mut heard = BTreeSet::new();
    for (partition, answer) in partitions.iter().zip(answers) {
        match answer.extract_error() {
            Ok(_) => _ = heard.insert(*partition),
            Err(error) if matches!(error.code(), Some("MOVED" | "ASK" | "CLUSTERDOWN")) => {}
            Err(error) if error.code().is_some() => return Ok(Err(classify("SSUBSCRIBE", &error))),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(heard))
}

/// Changes of attached keys, where the operator and the ACL grant them. Canaries prove it only where all
/// are granted: they are heard last, or not at all. For each topic, why it is refused. Asked again, what is granted
/// already stays.
pub(super) async fn hear_changes(
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
        info!(%error, pattern = %canaries, "cannot tell whether changes of attached keys are heard");
    }
    Ok(refused)
}

/// Why the server refuses, if it does. Any other error is one of the connection.
fn refusal(doing: &str, answer: RedisResult<()>) -> RedisResult<Option<Error>> {
    match answer {
        Err(error) if error.code().is_some() => Ok(Some(classify(doing, &error))),
        answer => answer.map(|()| None),
    }
}

/// `redis` cannot SSUBSCRIBE in RESP2, so only expired keys are heard here.
async fn in_resp2(address: &Address, sender: Sender) -> RedisResult<Subscription> {
    let (channel, queue) = (sender.decoder.expired.clone(), sender.queue.clone());
    // A session that has ended is told from an idle one by its queue.
    let ended = queue.clone();
    let closed = async move { ended.closed().await };
    let hear = move |push| sender.hear(push);
    let end = move || queue.push_always(Decoded::Disconnected);
    Subscription::in_resp2(address, &channel, hear, closed, end).await
}

/// Fills the bounded queue, and counts what does not fit.
#[derive(Clone)]
struct Sender {
    decoder: Arc<Decoder>,
    queue: backlog::Sender<Decoded>,
    /// What has no place in the queue.
    prompts: Arc<Prompts>,
    /// Since the queue last took anything.
    dropped: Arc<AtomicU64>,
}

impl Sender {
    /// That something found no room is said before anything else is let in.
    fn hear(&self, push: PushInfo) {
        let Some(heard) = self.decoder.hear(push) else { return };
        if let Decoded::Event(Event::Changed(key, Change::Written)) = heard {
            return self.prompts.hear(key);
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 && self.queue.push_again(Decoded::Dropped(dropped)) {
            self.dropped.fetch_sub(dropped, Ordering::Relaxed);
        }
        let missing = self.dropped.load(Ordering::Relaxed) > 0;
        if missing || !self.queue.push(heard) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether the node is who the cluster's map says listens there. Where the user may not ask, the map is believed.
pub(super) async fn check_name(connection: &Subscription, node: NodeId) -> Result<()> {
    match connection.call("asking a node for its name", cmd("CLUSTER").arg("MYID")).await {
        Ok(Value::BulkString(name)) if name == node.as_bytes() => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Unavailable, "another node of the cluster listens here by now")),
        Err(error) if error.code().is_some() => {
            debug!(%error, "a node does not say its name: the cluster's map is believed");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The run of a server that sentinels name: it begins anew with each start. Where the user may not ask, its address has
/// to do: two that are named one after the other have two.
pub(super) async fn name_of_run(connection: &Subscription, at: &Endpoint) -> Result<NodeId> {
    let info = match connection.call("asking a server for its run", cmd("INFO").arg("server")).await {
        Ok(info) => info,
        Err(error) if error.code().is_some() => {
            debug!(%error, server = %at, "a server does not say which run it is: its address has to do");
            Value::Nil
        }
        Err(error) => return Err(error),
    };
    let text: String = from_redis_value(info).unwrap_or_default();
    let run = text.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim);
    let named = run.and_then(|run| NodeId::new(run.as_bytes())).filter(NodeId::is_named);
    Ok(named.unwrap_or_else(|| by_address(at)))
}

fn by_address(at: &Endpoint) -> NodeId {
    let text = at.to_string();
    let digest = || format!("{:016x}", fnv1a(text.bytes()));
    NodeId::new(text.as_bytes()).or_else(|| NodeId::new(digest().as_bytes())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use keylapse_connection::{PushKind, Value};

    use super::*;

    #[tokio::test]
    async fn what_a_full_queue_drops_is_counted_and_told_before_what_follows() {
        let (queue, mut pushed) = backlog(40_000);
        let decoder = Arc::new(Decoder::new("keylapse", 0, &[], &[], false));
        let sender = Sender { decoder, queue, prompts: Arc::default(), dropped: Arc::default() };
        let key = |key: u8| vec![key; 4000];
        let hear = |keys: std::ops::Range<u8>| {
            for one in keys {
                let data = [b"__keyevent@0__:expired".to_vec(), key(one)].map(Value::BulkString).into();
                sender.hear(PushInfo { kind: PushKind::Message, data });
            }
        };
        let expired = |one: u8| Some(Decoded::Event(Event::Expired(key(one).into())));
        hear(0..12);
        // Not before half of it is free: else each key that is taken would end one gap and begin the next.
        for one in 0..9 {
            assert_eq!(pushed.recv().await, expired(one));
            if one == 2 {
                hear(12..13);
            }
        }
        assert!(pushed.is_empty(), "all others were dropped");
        hear(20..22);
        assert_eq!(pushed.recv().await, Some(Decoded::Dropped(4)));
        assert_eq!(pushed.recv().await, expired(20));
    }

    #[test]
    fn an_address_is_a_name_and_a_long_one_is_its_digest() {
        let at = |host: &str| Endpoint::Tcp { host: host.into(), port: 6379 };
        assert_eq!(by_address(&at("redis-1")).as_bytes(), b"redis-1:6379");
        let [one, other] = ["a", "b"].map(|host| by_address(&at(&host.repeat(50))));
        assert!(one.is_named() && one != other);
    }
}
