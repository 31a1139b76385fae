//! What sentinels say: who is the primary, and which others there are.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::{Value, pipe};
use tokio::time::{Instant, timeout, timeout_at};

use crate::Node;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;
use crate::lock::lock;
use crate::password::OF_SENTINELS;
use crate::sentinel::Sentinels;

/// A sentinel that says nothing for so long is not waited for.
pub(super) const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// When one has answered, the others are waited for so long.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);

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

    async fn ask_in_time(&self, at: &Endpoint, node: &Node) -> Result<Option<(Endpoint, u64)>> {
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
    async fn ask(&self, at: &Endpoint, sentinel: &Node) -> Result<Option<(Endpoint, u64)>> {
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
