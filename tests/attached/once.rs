//! A listener is away while keys are due, on a line that hands on small segments: each key fires once.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylapse::{Attached, Expiry, ListenerBuilder};
use keylapse_support::{Direction, Proxy, Server, eventually};
use tokio::time::sleep;

use crate::recovery::{by_key, write_many};
use crate::scene::{
    ALL_FLAGS, Notes, PATIENCE, Running, enrolled_from, hears, orders, server, until_later_key, until_time,
};

const KEYS: u64 = 1000;
/// What a segment of TCP holds in an Ethernet.
const SEGMENT: NonZeroUsize = NonZeroUsize::new(1448).unwrap();

/// How the listeners come to miss what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// They are stopped before, and others begin 2 s later.
    Away,
    /// The same, without a chance to hand anything over.
    Killed,
    /// Their subscriptions are cut so many times, every 20 ms, from 10 ms before the first key is due.
    Cut(u64),
}

/// Remembers that a listener received no canary for five seconds. Such a listener recovers keys whose expiry another one
/// may receive later (docs/attach.md). Here this happens only where the machine is too busy.
#[derive(Clone, Debug, Default)]
struct Deafness(Arc<AtomicBool>);

impl Deafness {
    fn watch(&self, listener: &Running) {
        let (stats, seen) = (listener.stats.clone(), self.0.clone());
        tokio::spawn(async move {
            while hears(&stats) {
                sleep(Duration::from_millis(20)).await;
            }
            seen.store(true, Ordering::Relaxed);
        });
    }

    fn was_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn attached(builder: ListenerBuilder, notes: &Notes) -> ListenerBuilder {
    builder.attach(Attached::new(orders()).scan_every(Duration::from_millis(300)), notes.handler())
}

async fn listeners(proxy: &Proxy, (notes, deafness): (&Notes, &Deafness), count: usize) -> Vec<Running> {
    let url = proxy.app_url();
    let all: Vec<_> = (0..count).map(|_| Running::at(&url, |builder| attached(builder, notes))).collect();
    for one in &all {
        eventually(PATIENCE, "an anchor", async || one.hears()).await;
        deafness.watch(one);
    }
    all
}

/// Keys that fire more than once, and none of whose runs says that it may not be the only one.
fn twice(notes: &Notes, deafness: &Deafness) -> Vec<String> {
    let may_repeat = |expiry| match expiry {
        Expiry::Ambiguous => true,
        Expiry::Recovered => deafness.was_seen(),
        _ => false,
    };
    let unexplained = by_key(notes)
        .into_iter()
        .filter(|(_, runs)| runs.len() > 1 && !runs.iter().any(|run| may_repeat(run.expiry)));
    unexplained.map(|(_, runs)| format!("{runs:?}")).collect()
}

async fn scene(flags: &str, count: usize, missing: Missing) {
    let server = server(flags).await;
    let proxy = Proxy::before(&server).await;
    proxy.split(Direction::Replies, Some(SEGMENT));
    let (notes, deafness) = (Notes::default(), Deafness::default());
    let before = listeners(&proxy, (&notes, &deafness), count).await;
    let prepare = async |from| {
        write_many(&server, KEYS, from).await;
        let all = i64::try_from(KEYS).unwrap();
        eventually(PATIENCE, "all to be enrolled", async || enrolled_from(&server, from).await == all).await;
    };
    let from = notes.in_time(12_000, 2000, prepare).await;
    // Nothing expires but what is read: so each expiry is caused by a look.
    server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    let after = miss(&server, &proxy, (&notes, &deafness), before, (missing, from)).await;
    let due = usize::try_from(KEYS).unwrap();
    eventually(PATIENCE, "all to fire", async || notes.are_of(due)).await;
    until_later_key(&server, &notes).await;
    let twice = twice(&notes, &deafness);
    assert!(twice.is_empty(), "{flags} {missing:?}, {count}: {} twice, as {}", twice.len(), twice[0]);
    assert!(notes.runs().iter().all(|run| run.at >= run.deadline), "{flags} {missing:?}, {count}: early");
    for one in after {
        one.stop().await;
    }
}

async fn miss(
    server: &Server,
    proxy: &Proxy,
    noted: (&Notes, &Deafness),
    listeners_before: Vec<Running>,
    (missing, from): (Missing, u64),
) -> Vec<Running> {
    let count = listeners_before.len();
    if let Missing::Cut(times) = missing {
        for cut in 0..times {
            until_time(from - 10 + 20 * cut).await;
            server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        }
        return listeners_before;
    }
    until_time(from - 1000).await;
    for one in listeners_before {
        if missing == Missing::Killed { one.kill() } else { one.stop().await }
    }
    until_time(from + 1000).await;
    listeners(proxy, noted, count).await
}

async fn with(flags: &str) {
    let all = [Missing::Away, Missing::Killed, Missing::Cut(1), Missing::Cut(25)];
    join_all([1, 3].into_iter().flat_map(|count| all.map(|missing| scene(flags, count, missing)))).await;
}

#[tokio::test]
async fn what_is_due_while_nobody_listens_fires_once_where_expiries_are_announced() {
    with("Ex").await;
}

#[tokio::test]
async fn what_is_due_while_nobody_listens_fires_once_where_changes_are_announced() {
    with(ALL_FLAGS).await;
}
