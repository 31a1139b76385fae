//! Notices when another server becomes the primary.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Weak;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream::{BoxStream, SelectAll, once};
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisResult};
use tokio::time::timeout;

use crate::classify::classify;
use crate::endpoint::Endpoint;
use crate::lock::lock;
use crate::log::debug;
use crate::sentinel::Sentinels;

/// All of them are asked this often, whatever they announce.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// And this often while they disagree: a failover is on its way.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long subscribing at one of them may take.
const WITHIN: Duration = Duration::from_secs(1);
/// That a replica was made the primary, which the sentinel says that has done it; and that all of them know.
const ANNOUNCED: [&str; 2] = ["+promoted-slave", "+switch-master"];

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
