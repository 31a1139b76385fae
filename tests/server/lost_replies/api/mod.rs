//! What applications see of lost replies: nothing. One call has one effect, each
//! attempt runs once, and no timer is lost.

mod every_third;
mod listeners;
mod producers;
mod torn;

use std::time::Duration;

use keylapse::stats::TopicStats;
use keylapse::{Backoff, Client, Done, Lapse, Listener, ListenerBuilder, Schedule, Topic};
use keylapse_support::{Proxy, Server, Then};
use keylapse_wire::scripts::Script;

use crate::server::support::{Reports, Running, listener, load_scripts, reporting, show_log};

/// A lost reply shows at once, or only by its not coming.
const BOTH: [Then; 2] = [Then::Close, Then::Stall];
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// A server and a bad line to it. What is called direct does not use the line.
struct Line {
    server: Server,
    proxy: Proxy,
    direct: Schedule,
}

impl Line {
    async fn start() -> Self {
        show_log();
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        // Or the lost reply might be a NOSCRIPT, and nothing have been done.
        load_scripts(&server).await;
        let direct = Schedule::connect(&server.app_url()).await.expect("a schedule");
        Self { server, proxy, direct }
    }

    fn client(&self) -> Client {
        let client = Client::new(&self.proxy.app_url()).expect("a client").answer_within(ANSWER_WITHIN);
        // Over TLS each new connection costs many times as much.
        client.expect("a client").retry_for(Duration::from_secs(60))
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(self.client())
    }

    fn listener(&self) -> ListenerBuilder {
        Listener::builder(self.client())
    }

    /// Loses the reply to the next run of a script.
    fn lose(&self, script: &Script, then: Then) {
        self.proxy.lose_reply(runs_of(script), then);
    }

    /// Arms a timer that is due at once, with a good line.
    async fn arm(&self, topic: &Topic<u32>, id: &str) {
        let armed = self.direct.arm(topic, [id], Duration::ZERO, &1).await.expect("an answer");
        assert!(armed.is_armed(), "{armed:?}");
    }

    /// Runs what is armed, with a good line, until `count` attempts have begun.
    async fn run_all(&self, topic: &Topic<u32>, count: usize) -> (Vec<String>, TopicStats) {
        let (running, mut reported) = start(listener(&self.server), topic);
        let ids = next_ids(&mut reported, count).await;
        let stats = stop(running).await;
        assert_eq!(reported.try_next(), None, "nothing else runs");
        (ids, stats)
    }

    /// Runs what is armed, with the bad line.
    fn running(&self, topic: &Topic<u32>) -> (Running, Reports<String>) {
        start(Listener::builder(self.client()), topic)
    }

    async fn assert_gone(&self, topic: &Topic<u32>, ids: &[&str]) {
        for id in ids {
            let timer = self.direct.look_up(topic, [*id]).await.expect("an answer");
            assert!(timer.is_none(), "{timer:?} is left");
        }
    }
}

fn runs_of(script: &Script) -> impl Fn(&[bytes::Bytes]) -> bool + Send + use<> {
    let sha = script.sha.clone();
    move |words| words.get(1).is_some_and(|word| *word == sha.as_bytes())
}

fn topic() -> Topic<u32> {
    Topic::new("app:line:{id}").expect("a topic").retry(Backoff::fixed(Duration::from_millis(20)))
}

/// A listener whose handler reports the id in the key and the attempt.
fn start(builder: ListenerBuilder, topic: &Topic<u32>) -> (Running, Reports<String>) {
    let (handler, reported) = reporting(|lapse: Lapse<u32>| {
        (format!("{} {}", lapse.capture("id").unwrap_or("?"), lapse.attempt()), Ok(Done))
    });
    (Running::start(builder.on(topic.clone(), handler)), reported)
}

async fn next_ids(reported: &mut Reports<String>, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        ids.push(reported.next().await);
    }
    ids.sort();
    ids
}

async fn stop(running: Running) -> TopicStats {
    let stats = running.stats.clone();
    running.stop().await.expect("an orderly end");
    stats.total()
}
