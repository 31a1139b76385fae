//! The line closes, or stands still, in the middle of an answer: behind each byte of it.

use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use futures::stream::{StreamExt, iter};
use keylapse::{ArmResult, Backoff, Client, Done, ErrorKind, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::{Proxy, Reach, Server, Then, eventually};
use keylapse_wire::scripts;

use super::{ANSWER_WITHIN, runs_of, stop, topic};
use crate::server::capture::Capture;
use crate::server::support::{PATIENCE, Running, load_scripts, reporting};

/// Checks this with each number of bytes below `most`, each behind a proxy of its own. A cluster says more, and has
/// room for fewer proxies: there it is with some.
async fn at_each<F: Future<Output = ()>>(server: &Server, most: usize, check: impl Fn(Proxy, usize) -> F) {
    load_scripts(server).await;
    let (most, step, at_once) =
        if Reach::of_this_run().is_cluster() { (6 * most, 37, 4) } else { (most, 1, 48) };
    let each = async |after| check(Proxy::before(server).await, after).await;
    iter((0..most).step_by(step)).map(each).buffer_unordered(at_once).collect::<()>().await;
}

/// Returns what comes of this while the first `count` connections are torn; and whether so many were.
async fn torn<T>(proxy: &Proxy, after: usize, count: usize, what: impl Future<Output = T>) -> (T, bool) {
    let (mut what, lost) = (pin!(what), proxy.lost());
    proxy.tear(Some(after));
    let early = tokio::select! {
        early = &mut what => Some(early),
        () = proxy.until_lost(lost + count) => None,
    };
    proxy.tear(None);
    match early {
        Some(early) => (early, proxy.lost() > lost),
        None => (what.await, true),
    }
}

fn client(proxy: &Proxy, answer_within: Duration) -> Client {
    Client::new(&proxy.app_url()).expect("a client").answer_within(answer_within).expect("a time")
}

fn assert_nobody_is_called(log: &Capture) {
    let mut lines = log.lines().into_iter();
    let odd = lines.find(|line| line.starts_with("ERROR") || line.contains("does not speak Redis' protocol"));
    assert_eq!(odd, None);
}

#[tokio::test]
async fn a_schedule_is_told_that_a_line_broke_and_the_next_try_succeeds() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    at_each(&server, 350, async |proxy, after| {
        // A line that closes shows at once: no time has to run out.
        let client = |proxy| client(proxy, Duration::from_secs(5));
        // Torn in the handshake, it fails; torn in its one question, it asks again.
        let (connected, _) = torn(&proxy, after, 1, Schedule::connect(client(&proxy))).await;
        if let Err(error) = connected {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "after {after} bytes: {error}");
        }
        let schedule = Schedule::connect(client(&proxy)).await.expect("a good line");
        let (new, topic) = (Schedule::new(client(&proxy)), topic());
        for (id, schedule) in [("known", schedule), ("new", new)] {
            let id = format!("{id}-{after}");
            let arm = schedule.arm(&topic, [id], Duration::from_secs(3600), &1).into_future();
            let (armed, _) = torn(&proxy, after, 1, arm).await;
            assert!(matches!(armed, Ok(ArmResult::Armed(_))), "after {after} bytes: {armed:?}");
        }
    })
    .await;
    assert_nobody_is_called(&log);
}

/// Its connections are torn until it has tried some times; then it runs a timer, whose claim, retry and end are torn, too.
#[tokio::test]
async fn a_listener_waits_until_its_line_is_whole_and_loses_nothing_to_torn_answers() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let direct = Schedule::connect(&server.app_url()).await.expect("a schedule");
    at_each(&server, 400, async |proxy, after| {
        let topic = Topic::<u32>::named(&format!("line{after}"), &format!("app:line{after}:{{id}}"));
        let topic = topic.expect("a topic").retry(Backoff::fixed(Duration::from_millis(20)));
        let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
            let end = if lapse.attempt() == 1 { Err(Failure::retry("not yet")) } else { Ok(Done) };
            (lapse.attempt(), end)
        });
        let running =
            Running::start(Listener::builder(client(&proxy, ANSWER_WITHIN)).on(topic.clone(), handler));
        torn(&proxy, after, 4, running.until_anchored()).await;
        for (script, then) in [
            (&scripts::CLAIM, Then::Tear(after)),
            (&scripts::SETTLE, Then::Halt(after)),
            (&scripts::ACK, Then::Tear(after)),
        ] {
            proxy.lose_reply(runs_of(script), then);
        }
        let lost = proxy.lost();
        let armed = direct.arm(&topic, ["1"], Duration::ZERO, &1).await.expect("an answer");
        assert!(armed.is_armed());
        assert_eq!([reported.next().await, reported.next().await], [1, 2], "after {after} bytes");
        eventually(PATIENCE, "all three to be lost", async || proxy.lost() >= lost + 3).await;
        running.until("its end", |stats| stats.total().handled == 1).await;
        let stats = stop(running).await;
        assert_eq!((stats.failed, stats.redelivered, stats.gone, stats.unsettled), (1, 0, 0, 0));
    })
    .await;
    assert_nobody_is_called(&log);
}
