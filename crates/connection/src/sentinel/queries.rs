//! Asks sentinels for the primary and for other sentinels, and receives their announcements of failovers.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream::{BoxStream, FuturesUnordered, SelectAll, once};
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisResult, Value, pipe};
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::Endpoint;
use crate::classify::classify;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::escape_line;
use crate::log::debug;
use crate::login::SENTINEL_PASSWORD_VARIABLE;
use crate::panics::lock;
use crate::sentinel::Sentinels;
use crate::server_connection::ServerConnection;

/// The time limit for the answer of one sentinel.
pub(super) const SENTINEL_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for the other sentinels, after the first answer.
const OTHER_SENTINELS_TIMEOUT: Duration = Duration::from_millis(500);

/// The interval between queries of all sentinels, in addition to their announcements.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval while the sentinels disagree, as they do during a failover.
const DISAGREEMENT_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time limit for subscribing at one sentinel.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The sentinel that promotes a replica publishes `+promoted-slave`. Every sentinel publishes `+switch-master`.
const FAILOVER_CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// The support of the sentinels for a server as the primary. The later failover wins, then the number of sentinels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PrimaryVotes {
    epoch: u64,
    pub(super) votes: usize,
}

impl Sentinels {
    /// Returns the servers that the sentinels name, with their support. After the first answer, it waits only briefly for
    /// the other sentinels, as one on a failed machine never answers.
    ///
    /// # Errors
    /// No sentinel names a server.
    pub(super) async fn query_primaries(&self) -> Result<Vec<(Endpoint, PrimaryVotes)>> {
        let nodes: Vec<_> = lock(&self.known).iter().map(|(at, node)| (at.clone(), node.clone())).collect();
        let mut asked: FuturesUnordered<_> =
            nodes.iter().map(|(at, node)| self.ask_in_time(at, node)).collect();
        let (mut named, mut worst, mut answered) = (HashMap::<_, PrimaryVotes>::new(), None::<Error>, false);
        // Each query has its own, shorter time limit.
        let mut until = Instant::now() + 2 * SENTINEL_QUERY_TIMEOUT;
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            match answer {
                Ok(one) => {
                    answered = true;
                    until = until.min(Instant::now() + OTHER_SENTINELS_TIMEOUT);
                    let Some((endpoint, epoch)) = one else { continue };
                    let support = named.entry(endpoint).or_default();
                    *support = PrimaryVotes { epoch: support.epoch.max(epoch), votes: support.votes + 1 };
                }
                Err(error) if worst.as_ref().is_none_or(Error::is_transient) => worst = Some(error),
                Err(_) => {}
            }
        }
        match worst {
            _ if !named.is_empty() => Ok(named.into_iter().collect()),
            Some(error) if !answered => Err(error),
            None if asked.is_empty() => Err(self.unknown()),
            worst => Err(self.unknown_to_some(worst)),
        }
    }

    async fn ask_in_time(
        &self,
        at: &Endpoint,
        node: &Arc<ServerConnection>,
    ) -> Result<Option<(Endpoint, u64)>> {
        let late = |_| Error::new(ErrorKind::Timeout, format!("sentinel {at} does not answer"));
        let answer = timeout(SENTINEL_QUERY_TIMEOUT, self.ask(at, node))
            .await
            .unwrap_or_else(|error| Err(late(error)));
        answer.map_err(|error| if error.kind() == ErrorKind::Auth { refused_by(at, &error) } else { error })
    }

    /// Returns the transient error for a primary that no answering sentinel watches. The other sentinels may watch it.
    fn unknown_to_some(&self, others: Option<Error>) -> Error {
        let others = others.map_or_else(|| "no answer".into(), |error| error.to_string());
        let name = escape_line(&self.name, 100);
        let message = format!(
            "the sentinels that answer watch no primary named {name}, and others do not answer ({others})"
        );
        Error::new(ErrorKind::Unavailable, message)
    }

    pub(super) fn unknown(&self) -> Error {
        Error::invalid(format!(
            "no sentinel watches a primary named {}: SENTINEL MASTERS lists the watched ones",
            escape_line(&self.name, 100)
        ))
    }

    /// Returns the server that one sentinel names, with the epoch of its last failover. Also adds the other sentinels that
    /// it names.
    async fn ask(&self, at: &Endpoint, sentinel: &Arc<ServerConnection>) -> Result<Option<(Endpoint, u64)>> {
        let mut questions = pipe();
        for what in ["MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS"] {
            questions.cmd("SENTINEL").arg(what).arg(&self.name);
        }
        let answers = sentinel.call_each(&format!("asking sentinel {at}"), &questions).await;
        let Ok([state, named, others]) = <[_; 3]>::try_from(answers) else { return Ok(None) };
        let named = match named {
            Err(error) if error.code() == Some("ERR") && error.to_string().contains("unknown command") => {
                let message =
                    format!("{at} is not a sentinel: the URL of a server begins with redis:// ({error})");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            named => redis::from_redis_value::<Option<(String, u16)>>(named?).ok().flatten(),
        };
        // A sentinel that refuses to list the others still names the primary.
        others.iter().for_each(|others| self.learn(others_in(others, at)));
        let epoch = state.ok().and_then(epoch_in).unwrap_or_default();
        Ok(named.and_then(|(host, port)| Some((Endpoint::of(&host, port, at)?, epoch))))
    }
}

/// Returns the error of a sentinel that refuses the login. Sentinels have their own login settings.
fn refused_by(sentinel: &Endpoint, error: &Error) -> Error {
    let code = error.code().map(|code| format!(" ({code})")).unwrap_or_default();
    let message = format!(
        "sentinel {sentinel} refuses the login{code}; check sentinel_user and sentinel_password of the URL, or {SENTINEL_PASSWORD_VARIABLE}"
    );
    Error::new(ErrorKind::Auth, message).with_code(error.code())
}

/// Returns the epoch of the last failover, in a sentinel's answer to SENTINEL MASTER.
fn epoch_in(state: Value) -> Option<u64> {
    redis::from_redis_value::<HashMap<String, String>>(state).ok()?.get("config-epoch")?.parse().ok()
}

/// Returns the endpoints in an answer to SENTINEL SENTINELS.
fn others_in(answer: &Value, asked: &Endpoint) -> Vec<Endpoint> {
    let others = redis::from_redis_value_ref::<Vec<HashMap<String, String>>>(answer).unwrap_or_default();
    let endpoint = |other: &HashMap<String, String>| {
        Endpoint::of(other.get("ip")?, other.get("port")?.parse().ok()?, asked)
    };
    others.iter().filter_map(endpoint).collect()
}

/// Watches for failovers until the sentinels are dropped.
pub(super) async fn watch(watched: Weak<Sentinels>) {
    let mut announcements = Announcements::default();
    loop {
        let Some(sentinels) = watched.upgrade() else { return };
        let (new, mut agree) = join(announcements.subscribe_all(&sentinels), find(&sentinels)).await;
        if new {
            // A sentinel may have announced a failover before the subscription.
            agree = find(&sentinels).await;
        }
        let name = sentinels.name.clone();
        drop(sentinels);
        let pause = if agree { POLL_INTERVAL } else { DISAGREEMENT_POLL_INTERVAL };
        let _ = timeout(pause, announcements.next_of(&name)).await;
    }
}

/// Checks for a failover. Returns whether the sentinels that answer agree, and true if the check fails.
async fn find(sentinels: &Sentinels) -> bool {
    sentinels.check_for_failover().await.unwrap_or_else(|error| {
        debug!(name = %sentinels.name, %error, "asking the sentinels failed");
        true
    })
}

/// The messages of one sentinel, then `None` at the end of its connection.
type SentinelMessages = BoxStream<'static, (Endpoint, Option<Msg>)>;

/// The announcements of all sentinels.
#[derive(Default)]
struct Announcements {
    subscribed: BTreeSet<Endpoint>,
    messages: SelectAll<SentinelMessages>,
}

impl Announcements {
    /// Subscribes at the known sentinels that have no subscription. Returns whether it added one.
    async fn subscribe_all(&mut self, sentinels: &Sentinels) -> bool {
        let known: Vec<_> = lock(&sentinels.known).keys().cloned().collect();
        let new = known.into_iter().filter(|endpoint| !self.subscribed.contains(endpoint));
        let subscribing = new.map(|endpoint| async move {
            let subscribed = timeout(SUBSCRIBE_TIMEOUT, subscribe(sentinels, &endpoint)).await;
            (endpoint, subscribed)
        });
        let before = self.subscribed.len();
        for (endpoint, subscribed) in join_all(subscribing).await {
            match subscribed {
                Ok(Ok((subscribed, messages))) => {
                    self.subscribed.insert(endpoint.clone());
                    let from = endpoint.clone();
                    let messages = messages.map(move |message| {
                        let _ = &subscribed; // dropping it would end the subscription
                        (from.clone(), Some(message))
                    });
                    self.messages.push(messages.chain(once(ready((endpoint, None)))).boxed());
                }
                Ok(Err(error)) => {
                    let error = classify("subscribing at a sentinel", &error);
                    debug!(sentinel = %endpoint, %error, "subscribing at a sentinel failed");
                }
                Err(_) => {}
            }
        }
        self.subscribed.len() > before
    }

    /// Waits for a message about the primary of this name, or for the end of a connection.
    async fn next_of(&mut self, name: &str) {
        loop {
            match self.messages.next().await {
                Some((_, Some(message))) if is_about(name, message.get_payload_bytes()) => return,
                Some((_, Some(_))) => {}
                Some((endpoint, None)) => {
                    self.subscribed.remove(&endpoint);
                    return;
                }
                None => std::future::pending().await,
            }
        }
    }
}

async fn subscribe(sentinels: &Sentinels, endpoint: &Endpoint) -> RedisResult<(PubSubSink, PubSubStream)> {
    let (mut sink, messages) = sentinels.sentinel(endpoint).connect_pubsub().await?.split();
    for channel in FAILOVER_CHANNELS {
        sink.subscribe(channel).await?;
    }
    Ok((sink, messages))
}

/// Returns whether the name is a word of the message: `<name> <old> <new>`, or `slave <replica> @ <name> <address>`. A false
/// match only causes one more query.
fn is_about(name: &str, message: &[u8]) -> bool {
    message.split(|byte| *byte == b' ').any(|word| word == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_another_primary_is_no_news() {
        let switched = b"mymaster 127.0.0.1 7000 127.0.0.1 7001";
        let promoted = b"slave 127.0.0.1:7001 127.0.0.1 7001 @ mymaster 127.0.0.1 7000";
        for said in [&switched[..], promoted] {
            assert!(is_about("mymaster", said));
            assert!(!is_about("master", said) && !is_about("mymaster2", said));
        }
    }
}
