//! What sentinels say: who is the primary, which others there are, and unasked, that another has become the primary.

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
use crate::escape::plain;
use crate::log::debug;
use crate::login::OF_SENTINELS;
use crate::node::Node;
use crate::panics::lock;
use crate::sentinel::Sentinels;

/// A sentinel that says nothing for so long is not waited for.
pub(super) const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// When one has answered, the others are waited for so long.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);

/// All of them are asked this often, whatever they announce.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// And this often while they disagree: a failover is on its way.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long subscribing at one of them may take.
const WITHIN: Duration = Duration::from_secs(1);
/// That a replica was made the primary, which the sentinel says that has done it; and that all of them know.
const ANNOUNCED: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// What speaks for a server: the later failover, and then the most sentinels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Support {
    epoch: u64,
    pub(super) votes: usize,
}

impl Sentinels {
    /// Whom the sentinels name, and with how much support. One whose machine is gone says nothing at all, and is not waited
    /// for once another has answered.
    pub(super) async fn named(&self) -> Result<Vec<(Endpoint, Support)>> {
        let nodes: Vec<_> = lock(&self.known).iter().map(|(at, node)| (at.clone(), node.clone())).collect();
        let mut asked: FuturesUnordered<_> =
            nodes.iter().map(|(at, node)| self.ask_in_time(at, node)).collect();
        let (mut named, mut worst, mut answered) = (HashMap::<_, Support>::new(), None::<Error>, false);
        // Each of them is answered in its time.
        let mut until = Instant::now() + 2 * ASKED_WITHIN;
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            match answer {
                Ok(one) => {
                    answered = true;
                    until = until.min(Instant::now() + OTHERS_WITHIN);
                    let Some((endpoint, epoch)) = one else { continue };
                    let support = named.entry(endpoint).or_default();
                    *support = Support { epoch: support.epoch.max(epoch), votes: support.votes + 1 };
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

    async fn ask_in_time(&self, at: &Endpoint, node: &Arc<Node>) -> Result<Option<(Endpoint, u64)>> {
        let late = |_| Error::new(ErrorKind::Timeout, format!("sentinel {at} does not answer"));
        let answer = timeout(ASKED_WITHIN, self.ask(at, node)).await.unwrap_or_else(|error| Err(late(error)));
        answer.map_err(|error| if error.kind() == ErrorKind::Auth { refused_by(at, &error) } else { error })
    }

    /// Those that may know it do not answer: that may pass.
    fn unknown_to_some(&self, others: Option<Error>) -> Error {
        let others = others.map_or_else(|| "no answer".into(), |error| error.to_string());
        let name = plain(&self.name, 100);
        let message =
            format!("the sentinels that answer know no primary called {name}, and others do not ({others})");
        Error::new(ErrorKind::Unavailable, message)
    }

    pub(super) fn unknown(&self) -> Error {
        Error::invalid(format!(
            "no sentinel knows a primary called {}: SENTINEL MASTERS lists those that there are",
            plain(&self.name, 100)
        ))
    }

    /// Whom one sentinel names, and since which epoch; learns from it which others there are.
    async fn ask(&self, at: &Endpoint, sentinel: &Arc<Node>) -> Result<Option<(Endpoint, u64)>> {
        let mut questions = pipe();
        for what in ["MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS"] {
            questions.cmd("SENTINEL").arg(what).arg(&self.name);
        }
        let answers = sentinel.call_each(&format!("asking sentinel {at}"), &questions).await;
        let Ok([state, named, others]) = <[_; 3]>::try_from(answers) else { return Ok(None) };
        let named = match named {
            Err(error) if error.code() == Some("ERR") && error.to_string().contains("unknown command") => {
                let message =
                    format!("{at} is no sentinel: the URL of a server begins with redis:// ({error})");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            named => redis::from_redis_value::<Option<(String, u16)>>(named?).ok().flatten(),
        };
        // Who may not be asked for these is still good for its own word.
        others.iter().for_each(|others| self.learn(others_in(others, at)));
        let epoch = state.ok().and_then(epoch_in).unwrap_or_default();
        Ok(named.and_then(|(host, port)| Some((Endpoint::of(&host, port, at)?, epoch))))
    }
}

/// Sentinels have a login of their own, which the servers' settings say nothing of.
fn refused_by(sentinel: &Endpoint, error: &Error) -> Error {
    let code = error.code().map(|code| format!(" ({code})")).unwrap_or_default();
    let message = format!(
        "sentinel {sentinel} refuses the login{code}; check sentinel_user and sentinel_password of the URL, or {OF_SENTINELS}"
    );
    Error::new(ErrorKind::Auth, message).with_code(error.code())
}

/// When a primary became one, as a sentinel's answer to SENTINEL MASTER counts failovers.
fn epoch_in(state: Value) -> Option<u64> {
    redis::from_redis_value::<HashMap<String, String>>(state).ok()?.get("config-epoch")?.parse().ok()
}

/// The endpoints in an answer to SENTINEL SENTINELS.
fn others_in(answer: &Value, asked: &Endpoint) -> Vec<Endpoint> {
    let others = redis::from_redis_value_ref::<Vec<HashMap<String, String>>>(answer).unwrap_or_default();
    let endpoint = |other: &HashMap<String, String>| {
        Endpoint::of(other.get("ip")?, other.get("port")?.parse().ok()?, asked)
    };
    others.iter().filter_map(endpoint).collect()
}

/// Until nobody needs the primary any more.
pub(super) async fn watch(watched: Weak<Sentinels>) {
    let mut announcements = Announcements::default();
    loop {
        let Some(sentinels) = watched.upgrade() else { return };
        let (new, mut agree) = join(announcements.hear_all(&sentinels), find(&sentinels)).await;
        if new {
            // What one of them has said before it was heard.
            agree = find(&sentinels).await;
        }
        let name = sentinels.name.clone();
        drop(sentinels);
        let pause = if agree { ASK_EVERY } else { ASK_AGAIN };
        let _ = timeout(pause, announcements.next_of(&name)).await;
    }
}

/// Whether they agree who is the primary, as far as they answer.
async fn find(sentinels: &Sentinels) -> bool {
    sentinels.find_if_news().await.unwrap_or_else(|error| {
        debug!(name = %sentinels.name, %error, "the sentinels were asked in vain");
        true
    })
}

/// What one sentinel says, and then that its connection has ended.
type Said = BoxStream<'static, (Endpoint, Option<Msg>)>;

/// What all of them say.
#[derive(Default)]
struct Announcements {
    heard: BTreeSet<Endpoint>,
    said: SelectAll<Said>,
}

impl Announcements {
    /// Subscribes at those that are known and not heard; whether there are such now.
    async fn hear_all(&mut self, sentinels: &Sentinels) -> bool {
        let known: Vec<_> = lock(&sentinels.known).keys().cloned().collect();
        let new = known.into_iter().filter(|endpoint| !self.heard.contains(endpoint));
        let subscribing = new.map(|endpoint| async move {
            let subscribed = timeout(WITHIN, subscribe(sentinels, &endpoint)).await;
            (endpoint, subscribed)
        });
        let before = self.heard.len();
        for (endpoint, subscribed) in join_all(subscribing).await {
            match subscribed {
                Ok(Ok((subscribed, messages))) => {
                    self.heard.insert(endpoint.clone());
                    let from = endpoint.clone();
                    let messages = messages.map(move |message| {
                        let _ = &subscribed; // dropping it would end the subscription
                        (from.clone(), Some(message))
                    });
                    self.said.push(messages.chain(once(ready((endpoint, None)))).boxed());
                }
                Ok(Err(error)) => {
                    let error = classify("subscribing at a sentinel", &error);
                    debug!(sentinel = %endpoint, %error, "it announces nothing");
                }
                Err(_) => {}
            }
        }
        self.heard.len() > before
    }

    /// Waits until something is said about the primary of this name, or a connection has ended.
    async fn next_of(&mut self, name: &str) {
        loop {
            match self.said.next().await {
                Some((_, Some(message))) if is_about(name, message.get_payload_bytes()) => return,
                Some((_, Some(_))) => {}
                Some((endpoint, None)) => {
                    self.heard.remove(&endpoint);
                    return;
                }
                None => std::future::pending().await,
            }
        }
    }
}

async fn subscribe(sentinels: &Sentinels, endpoint: &Endpoint) -> RedisResult<(PubSubSink, PubSubStream)> {
    let (mut sink, messages) = sentinels.sentinel(endpoint).connect_pubsub().await?.split();
    for channel in ANNOUNCED {
        sink.subscribe(channel).await?;
    }
    Ok((sink, messages))
}

/// Whether the name is one of the words: `<name> <old> <new>`, or `slave <replica> @ <name> <address>`. The sentinels are
/// asked in any case, so that it is enough that no word of ours is missed.
fn is_about(name: &str, said: &[u8]) -> bool {
    said.split(|byte| *byte == b' ').any(|word| word == name.as_bytes())
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
