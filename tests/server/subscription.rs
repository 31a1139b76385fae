//! The subscription: what it hears, what it costs, and how it heals.

use std::time::{Duration, Instant};

use keylapse::inside::receiving::event::{Event, Gap};
use keylapse::inside::receiving::events;
use keylapse::{Done, Lapse, Topic};
use keylapse_support::{Provider, Proxy, Reach, Server, eventually, skipped, skipped_on_a_cluster};
use keylapse_wire::Store;
use keylapse_wire::names::PartitionNames;

use crate::server::support::{PATIENCE, Reports, Running, listener, reporting, show_log};

fn topic() -> Topic<u32> {
    Topic::new("app:sub:{id}").unwrap()
}

fn start(builder: keylapse::ListenerBuilder) -> (Running, Reports<u32>) {
    let (handler, reported) = reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok(Done)));
    (Running::start(builder.on(topic(), handler)), reported)
}

/// Where RESP3 is refused, expired keys are heard in RESP2, and sweeps do what
/// wake-ups would.
#[tokio::test(flavor = "multi_thread")]
async fn without_resp3_everything_works_on_sweeps_and_expired_keys() {
    show_log();
    let server = Server::builder().config("rename-command", "HELLO \"\"").start().await;
    let (running, mut reported) = start(keylapse::Listener::builder(server.url()));
    running.until_anchored().await;
    let schedule = keylapse::Schedule::connect(&server.url()).await.unwrap();
    for n in 0..3 {
        let _ = schedule.arm(&topic(), [n.to_string()], Duration::from_millis(100), &n).await.unwrap();
        assert_eq!(reported.next().await, n);
    }
    running.until("the keys' expiries to be heard", |stats| stats.total().announced == 3).await;
    running.stop().await.unwrap();
}

/// Counted, not timed: a lone listener with one topic sends at most three
/// requests a second while nothing happens.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_listener_sends_at_most_three_requests_a_second() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let (running, _) = start(keylapse::Listener::builder(proxy.app_url()));
    running.until("the listener to settle", |stats| stats.listener().sweeps >= 2).await;
    proxy.reset_counts();
    let sweeps = running.stats.listener().sweeps;
    // Two calm sweeps are ten seconds, by the listener's own clock.
    running.until("ten seconds to pass", |stats| stats.listener().sweeps >= sweeps + 2).await;
    let sent: u64 = proxy.batches();
    assert!(sent <= 33, "{sent} requests in ten seconds: {:?}", proxy.requests());
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_subscription_comes_back_and_what_was_missed_is_swept_up() {
    let (server, schedule) = crate::server::support::server_and_schedule().await;
    let (running, mut reported) = start(listener(&server));
    for n in 0..5 {
        running.until("the subscription to stand", |stats| stats.listener().anchored > u64::from(n)).await;
        server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        let _ = schedule.arm(&topic(), [n.to_string()], Duration::ZERO, &n).await.unwrap();
        assert_eq!(reported.next().await, n);
        running.until("the gap to be noticed", |stats| stats.listener().gaps > u64::from(n)).await;
    }
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_flags_are_added_only_when_asked_for() {
    let (server, _) = crate::server::support::server_and_schedule().await;
    let flags = async || -> Vec<String> {
        redis::from_redis_value(server.cmd(&["CONFIG", "GET", "notify-keyspace-events"]).await).unwrap()
    };
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "Kg"]).await;
    let (running, _) = start(keylapse::Listener::builder(server.url()));
    running.until("the silence to be noticed", |stats| stats.listener().gaps > 0).await;
    running.stop().await.unwrap();
    assert_eq!(flags().await[1], "gK", "never changed unasked");
    let (running, _) = start(keylapse::Listener::builder(server.url()).manage_notifications());
    let added = async || flags().await[1].contains('E') && flags().await[1].contains('x');
    eventually(PATIENCE, "the flags are added", added).await;
    assert!(flags().await[1].contains('K') && flags().await[1].contains('g'), "what was there stays");
    running.stop().await.unwrap();
}

/// Nobody reads what is heard: a bounded number of events waits, a gap tells of the others, and what comes
/// after that is heard again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_ends_with_a_gap_and_goes_on_when_it_is_read() {
    if skipped_on_a_cluster("there is a queue for each node, and this test reads that of one server") {
        return;
    }
    const SENT: usize = 1_200_000;
    let server = Server::start().await;
    let at = PartitionNames::new("keylapse", "full", 0, 1, false);
    let mut events = events(&Store::at(&server.url()).unwrap(), std::slice::from_ref(&at));
    while events.recv().await.unwrap() != Event::Anchored {}
    // A server would cut off who is slower than this; that is a gap, too, but another one.
    server.cmd(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"]).await;
    let publish = "for i = 1, ARGV[2] do redis.call('SPUBLISH', ARGV[1], 'w' .. i) end";
    server.cmd(&["EVAL", publish, "0", &at.wake, &SENT.to_string()]).await;
    // What lies between the two processes is less than what finds no room.
    let all_sent = async || {
        let list = server.cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
        redis::from_redis_value::<String>(list).unwrap().contains(" omem=0 ")
    };
    eventually(PATIENCE * 2, "all to be sent", all_sent).await;
    let (mut heard, mut gap, mut again) = (0, false, false);
    let until_heard_again = async {
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        while !gap || !again {
            tokio::select! {
                event = events.recv() => match event.unwrap() {
                    // On a busy machine the connection is given up before its events can be counted.
                    Event::Gap(Gap::Overflow | Gap::Disconnected) => gap = true,
                    Event::Wake { at: 7_000_000, .. } => again = true,
                    Event::Wake { .. } => heard += 1,
                    _ => {}
                },
                _ = tick.tick() => drop(server.cmd(&["SPUBLISH", &at.wake, "w7000000"]).await),
            }
        }
    };
    tokio::time::timeout(PATIENCE * 2, until_heard_again).await.expect("a gap, and then all is heard");
    assert!(heard < SENT, "{heard} have waited");
}

/// Asserts it of a listener of a server that clients reach so.
async fn assert_one_in_two_seconds(reach: Reach) {
    let server = Server::builder().reach(reach).start().await;
    let schedule = keylapse::Schedule::connect(&server.app_url()).await.unwrap();
    let proxy = Proxy::before(&server).await;
    let (running, mut reported) = start(keylapse::Listener::builder(proxy.app_url()).save_requests());
    // Until it is known whether events flow, and each script was loaded.
    let began = Instant::now();
    let is_settled = |stats: &keylapse::stats::Stats| {
        stats.listener().sweeps >= 3 && began.elapsed() >= Duration::from_secs(20)
    };
    running.until("the listener to settle", is_settled).await;
    proxy.reset_counts();
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(40)).await; // this is what is measured
    let (requests, seconds) = (proxy.requests(), began.elapsed().as_secs_f64());
    let sent: u64 = requests.values().sum();
    println!("{sent} requests in {seconds:.1} s: {requests:?}");
    assert!(sent * 2 <= seconds as u64, "{sent} requests in {seconds:.1} s: {requests:?}");
    for n in 0..3 {
        let topic = topic().marker_keys(false);
        let armed = schedule.arm(&topic, [n.to_string()], Duration::from_millis(200), &n).await.unwrap();
        assert_eq!(reported.next().await, n);
        let late = armed.receipt().unwrap().deadline.elapsed().unwrap_or_default();
        assert!(late < Duration::from_secs(5), "it was told of each, and {n} started {late:?} late");
    }
    running.stop().await.unwrap();
}

/// Counted, not timed: each command, as services count them.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_saves_requests_sends_one_in_two_seconds_and_is_in_time() {
    show_log();
    if Reach::of_this_run() != &Reach::default() {
        return skipped("it is the same in any run");
    }
    // The second announces nothing, and refuses keylapse's own key.
    let serverless = Reach::through(Provider::named("elasticache-serverless"));
    tokio::join!(assert_one_in_two_seconds(Reach::default()), assert_one_in_two_seconds(serverless));
}
