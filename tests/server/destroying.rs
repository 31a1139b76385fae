//! A topic is destroyed: what is armed meanwhile is in or refused, whoever dies, and the server goes on serving.

use keylapse::inside::ClientInside as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keylapse::{
    Attached, Client, Done, ErrorKind, Expired, Failure, Lapse, Listener, NewArm, Schedule, Topic,
};
use keylapse_connection::id::DestroyId;
use keylapse_console::{Console, Destroyed};
use keylapse_support::{APP_PASSWORD, APP_USER, Proxy, Server, Then, eventually, took_at_most};
use keylapse_wire::CloseMode;
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames, WIRE_VERSION};
use redis::{Value, from_redis_value};

use crate::server::capture::Capture;
use crate::server::console;
use crate::server::support::{PATIENCE, Running, listener, reporting, server_and_schedule, until_dead};

const LONG: Duration = Duration::from_secs(3600);

fn orders() -> Topic<u32> {
    Topic::named("order", "app:order:{id}").unwrap().partitions(4)
}

async fn arm(schedule: &Schedule, topic: &Topic<u32>, ids: std::ops::Range<usize>) {
    let arms = ids.map(|id| NewArm::new(id, LONG, 7));
    for armed in schedule.arm_many(topic, arms).await.unwrap() {
        assert!(armed.unwrap().is_armed());
    }
}

/// All keys of a pattern.
async fn keys(server: &Server, pattern: &str) -> BTreeSet<String> {
    from_redis_value(server.cmd(&["KEYS", pattern]).await).unwrap()
}

/// What is left of the topic: names in Redis, and its line in the list.
async fn left(server: &Server) -> (BTreeSet<String>, bool) {
    let listed = server.cmd(&["HEXISTS", "keylapse:topics", "order"]).await == Value::Int(1);
    (keys(server, "keylapse:{order/*").await, listed)
}

fn gone() -> (BTreeSet<String>, bool) {
    (BTreeSet::new(), false)
}

fn partition(topic: &Topic<u32>, index: u32) -> PartitionNames {
    PartitionNames::new(DEFAULT_NAMESPACE, topic.name(), index, 4, false)
}

#[tokio::test]
async fn nothing_of_a_topic_is_left_and_other_keys_are_not_touched() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = orders();
    let failing = |_: Lapse<u32>| std::future::ready(Err::<Done, _>(Failure::dead("no")));
    let running = Running::start(listener(&server).on(topic.clone(), failing));
    assert!(schedule.arm(&topic, 0, Duration::ZERO, &7).await.unwrap().is_armed());
    until_dead(&schedule, &topic, 1).await;
    running.stop().await.unwrap();
    // Of these the names are taken: by a number without an end, and by text that expires with the timer.
    server.cmd(&["SET", "app:order:1", "5"]).await;
    arm(&schedule, &topic, 1..2000).await;
    let deadline: i64 = from_redis_value(server.cmd(&["PEXPIRETIME", "app:order:2"]).await).unwrap();
    server.cmd(&["SET", "app:order:2", "mine", "PXAT", &deadline.to_string()]).await;
    let other = Topic::<u32>::named("other", "app:other:{id}").unwrap();
    assert!(schedule.arm(&other, 1, LONG, &7).await.unwrap().is_armed());

    let refused = console.destroy(&topic).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    assert!(
        refused.to_string().contains("topic order holds 1,999 timers: let them end or cancel them"),
        "{refused}"
    );
    assert!(schedule.look_up(&topic, 1).await.unwrap().is_some(), "nothing was closed for that");

    let destroyed = console.destroy(&topic).forced().await.unwrap();
    let Destroyed { timers, tracked, dead_letters, marker_keys, .. } = destroyed;
    assert_eq!((timers, tracked, dead_letters, marker_keys), (1999, 0, 1, 1997));
    assert_eq!(left(&server).await, gone());
    assert_eq!(
        keys(&server, "app:*").await,
        ["app:order:1", "app:order:2", "app:other:1"].map(String::from).into()
    );
    assert!(schedule.look_up(&other, 1).await.unwrap().is_some());
    assert_eq!(console.destroy(&topic).await.unwrap(), Destroyed::default(), "once more does no harm");
    assert_eq!(left(&server).await, gone());
}

#[tokio::test]
async fn who_listens_is_named_and_keeps_the_topic_and_a_dead_letter_does_not() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    assert_eq!(console.destroy(&orders()).await.unwrap(), Destroyed::default(), "it was never armed");
    let failing = |_: Lapse<u32>| std::future::ready(Err::<Done, _>(Failure::dead("no")));
    let running = Running::start(listener(&server).on(orders(), failing));
    assert!(schedule.arm(&orders(), 0, Duration::ZERO, &7).await.unwrap().is_armed());
    until_dead(&schedule, &orders(), 1).await;
    eventually(PATIENCE, "a report", async || !schedule.serving(&orders()).await.unwrap().is_empty()).await;
    let report = schedule.serving(&orders()).await.unwrap().remove(0);
    let refused = console.destroy(&orders()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    for part in [
        &report.id,
        &report.host,
        &std::process::id().to_string()[..],
        "stop it, or destroy the topic forced()",
    ] {
        assert!(refused.to_string().contains(part), "{part} in {refused}");
    }
    running.stop().await.unwrap();
    assert_eq!(console.destroy(&orders()).await.unwrap().dead_letters, 1);
    assert_eq!(left(&server).await, gone());
}

/// However many keys are enrolled, and whoever died on the way.
#[tokio::test]
async fn a_topic_that_is_detached_can_become_managed() {
    const KEYS: usize = 20_000;
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let attached = || Attached::new(orders()).keep_values(100);
    let failing = |lapse: Lapse<Expired<u32>>| {
        let dead = lapse.capture("id") == Some("dead");
        std::future::ready(if dead { Err(Failure::dead("no")) } else { Ok(Done) })
    };
    let mut writes = redis::pipe();
    for id in 0..KEYS {
        writes.cmd("SET").arg(format!("app:order:{id}")).arg(id).arg("PX").arg(3_600_000).ignore();
    }
    writes.exec_async(&mut server.conn().await).await.unwrap();
    server.cmd(&["SET", "app:order:dead", "1", "PX", "5000"]).await;
    let running = Running::start(listener(&server).attach(attached(), failing));
    let stats = || running.stats.attached("order").unwrap();
    eventually(PATIENCE, "all keys to be enrolled", async || stats().tracked >= KEYS as u64).await;
    until_dead(&schedule, attached().topic(), 1).await;

    let in_use = async |why: &str| {
        let refused = console.detach(attached().topic()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InUse, "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    };
    in_use("is served by").await;
    running.stop().await.unwrap();
    in_use("topic order holds 1 dead letter").await;
    let letters = schedule.dead_letters(attached().topic()).page(10).await.unwrap();
    schedule.drop_dead_letter(&letters[0]).await.unwrap();
    let refused = console.detach(&orders()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let refused = console.destroy(attached().topic()).await.unwrap_err();
    assert!(refused.to_string().contains("topic order holds 20,000 tracked keys"), "{refused}");
    let refused = console.destroy(&orders()).forced().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "a topic of another kind is left alone");

    // One who died has closed the first partition.
    let store = Client::new(&server.app_url()).unwrap().store().clone();
    let first = PartitionNames::new(DEFAULT_NAMESPACE, "order", 0, 4, true);
    assert!(store.close(&first, CloseMode::Detached).await.unwrap().closed);
    server.cmd(&["CONFIG", "RESETSTAT"]).await;
    let gone_with_it = console.detach(attached().topic()).await.unwrap();
    let Destroyed { timers, tracked, dead_letters, .. } = gone_with_it;
    assert_eq!((timers, tracked, dead_letters), (0, KEYS as u64, 0));
    assert_eq!(left(&server).await, gone());
    assert_eq!(keys(&server, "app:*").await.len(), KEYS);
    let info: String = from_redis_value(server.cmd(&["INFO", "commandstats"]).await).unwrap();
    let scripts = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let calls: u32 = scripts.split(['=', ',']).nth(1).unwrap().parse().unwrap();
    assert!(calls <= 4 * 4 + 2, "four for each partition, and for two scripts that were not known: {calls}");

    assert!(schedule.arm(&orders(), 1, LONG, &7).await.unwrap().is_armed());
}

/// How long a script takes depends on the machine, how many timers it takes apart does not.
#[tokio::test(flavor = "multi_thread")]
async fn timed_a_hundred_thousand_timers_go_in_steps_that_hold_nobody_up() {
    const TIMERS: usize = 100_000;
    let (server, schedule) = server_and_schedule().await;
    let topic = orders().marker_keys(false);
    arm(&schedule, &topic, 0..TIMERS).await;
    server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "10000"]).await;
    server.cmd(&["SLOWLOG", "RESET"]).await;
    let proxy = Proxy::before(&server).await;
    let others = Console::connect(&*proxy.app_url()).await.unwrap();
    others.destroy(&topic).forced().await.unwrap();
    assert_eq!(left(&server).await, gone());
    let steps = proxy.requests()["EVALSHA"];
    assert!(steps >= TIMERS as u64 / 500, "{steps} steps");
    let slow: Vec<(u64, u64, u64, Vec<String>)> = {
        let Value::Array(entries) = server.cmd(&["SLOWLOG", "GET", "-1"]).await else { panic!("an array") };
        entries
            .into_iter()
            .map(|entry| {
                let Value::Array(fields) = entry else { panic!("an array") };
                let words = from_redis_value::<Vec<redis::Value>>(fields[3].clone()).unwrap();
                let words =
                    words.into_iter().map(|word| from_redis_value::<String>(word).unwrap_or_default());
                let number = |at: usize| from_redis_value(fields[at].clone()).unwrap();
                (number(0), number(1), number(2), words.collect())
            })
            .collect()
    };
    let mut took: Vec<_> = slow
        .iter()
        .filter(|(.., words)| words[0].eq_ignore_ascii_case("EVALSHA"))
        .map(|(_, _, us, _)| *us)
        .collect();
    took.sort_unstable();
    // By the clock: now and then somebody else has the processor meanwhile.
    let longest = took[took.len() - 1 - took.len() / 50];
    took_at_most(Duration::from_millis(100), Duration::from_micros(longest), "all scripts but one in fifty");
    assert!(took.len() as u64 >= TIMERS as u64 / 500, "{} in the log", took.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyer_that_dies_anywhere_leaves_the_rest_to_the_next_call() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = orders();
    // So many scripts are run, and then its line is cut for good.
    for lives in [0, 4, 5, 7, 8, 9, 12, 16, 18, 19] {
        arm(&schedule, &topic, 0..1200).await;
        let proxy = Proxy::before(&server).await;
        let dying = Console::new(Client::new(&proxy.app_url()).unwrap().retry_for(Duration::from_millis(50)));
        let seen = Arc::new(AtomicUsize::new(0));
        let counting = seen.clone();
        let is_last = move |words: &[bytes::Bytes]| {
            let script = words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"EVALSHA"));
            script && words.len() > 10 && counting.fetch_add(1, Ordering::Relaxed) >= lives
        };
        proxy.lose_replies(usize::MAX, is_last, Then::Close);
        dying.destroy(&topic).forced().await.unwrap_err();
        drop(proxy);
        let begun = keys(&server, "keylapse:{order/0}:meta").await.len() == 1
            && server.cmd(&["HGET", "keylapse:{order/0}:meta", "v"]).await != present();
        let ended =
            if begun { console.destroy(&topic).await } else { console.destroy(&topic).forced().await };
        ended.unwrap_or_else(|error| panic!("after {lives}: {error}"));
        assert_eq!(left(&server).await, gone(), "after {lives}");
        assert!(keys(&server, "app:order:*").await.is_empty(), "after {lives}");
    }
}

#[tokio::test]
async fn a_refusal_opens_what_a_dead_call_has_closed() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = orders();
    let store = Client::new(&server.app_url()).unwrap().store().clone();
    arm(&schedule, &topic, 0..1).await;
    // Whoever found it empty has closed two partitions, and one by force that is over.
    let id = (0..4).find(|index| *index != keylapse_wire::names::partition_of(b"app:order:0", 4)).unwrap();
    store.close(&partition(&topic, id), CloseMode::Empty).await.unwrap();
    let other = (1..4).rev().find(|index| *index != id).unwrap();
    store.close(&partition(&topic, other), CloseMode::ByForce(DestroyId::random())).await.unwrap();
    let refused = console.destroy(&topic).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse, "{refused}");
    arm(&schedule, &topic, 1..100).await;
}

/// Producers arm without a pause. When it is over, what is there is whole, and what is not there is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_armed_meanwhile_is_found_or_gone_and_never_half_there() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = orders();
    for round in 0..10 {
        arm(&schedule, &topic, 0..2000).await;
        let (done, refusals) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let (done, refusals, topic) = (done.clone(), refusals.clone(), topic.clone());
                let client = Client::new(&server.app_url()).unwrap();
                // Half of them wait until the topic is back.
                let client = if producer % 2 == 0 { client.retry_for(Duration::ZERO) } else { client };
                tokio::spawn(async move {
                    let schedule = Schedule::connect(client).await.unwrap();
                    let mut after = Vec::new();
                    for number in 0.. {
                        let was_done = done.load(Ordering::SeqCst);
                        let id = format!("{producer}-{round}-{number}");
                        match schedule.arm(&topic, &id, LONG, &7).await {
                            Ok(armed) => {
                                assert!(armed.is_armed());
                                if was_done {
                                    after.push(id);
                                }
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Destroying, "{error}");
                                refusals.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        if after.len() >= 20 {
                            return after;
                        }
                    }
                    unreachable!()
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        console.destroy(&topic).forced().await.unwrap();
        done.store(true, Ordering::SeqCst);
        for producer in producers {
            for id in producer.await.unwrap() {
                assert!(
                    schedule.look_up(&topic, &id).await.unwrap().is_some(),
                    "{id} was armed after the end"
                );
            }
        }
        assert!(refusals.load(Ordering::Relaxed) > 0, "nobody was refused in round {round}");
        for id in 0..2000 {
            assert!(schedule.look_up(&topic, id).await.unwrap().is_none(), "{id} was armed before");
        }
        let listed = server.cmd(&["HEXISTS", "keylapse:topics", "order"]).await;
        assert_eq!(listed, Value::Int(1), "the topic is back on the list");
        whole(&server).await;
        console.destroy(&topic).forced().await.unwrap();
    }
}

/// What the meta of a partition says that is not being destroyed.
fn present() -> Value {
    Value::BulkString(WIRE_VERSION.to_string().into_bytes())
}

/// In each partition each record has its index entry, and the other way round, and a meta says who it is.
async fn whole(server: &Server) {
    for index in 0..4 {
        let name = |what: &str| format!("keylapse:{{order/{index}}}:{what}");
        let recs: BTreeSet<Vec<u8>> =
            from_redis_value(server.cmd(&["HKEYS", &name("timers")]).await).unwrap();
        let due: BTreeSet<Vec<u8>> =
            from_redis_value(server.cmd(&["ZRANGE", &name("due"), "0", "-1"]).await).unwrap();
        assert_eq!(recs, due, "partition {index}");
        let version = server.cmd(&["HGET", &name("meta"), "v"]).await;
        assert!(recs.is_empty() || version == present(), "partition {index}: {version:?}");
    }
}

/// Closed by somebody who then died.
#[tokio::test]
async fn a_listener_of_a_closed_topic_says_so_once_and_does_not_spin() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let console = console(&server);
    let topic = orders();
    let (handler, mut ran) = reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok(Done)));
    let proxy = Proxy::before(&server).await;
    let running = Running::start(Listener::builder(proxy.app_url()).on(topic.clone(), handler));
    running.until_anchored().await;
    let store = Client::new(&server.app_url()).unwrap().store().clone();
    for index in 0..4 {
        store.close(&partition(&topic, index), CloseMode::Empty).await.unwrap();
    }
    // Something is due all the time, in every index.
    for index in 0..4 {
        let at = partition(&topic, index);
        server.cmd(&["ZADD", at.key("due"), "1", "app:order:x"]).await;
        server.cmd(&["SPUBLISH", &at.wake, "w0"]).await;
    }
    running.until("the refusal", |stats| stats.total().claim_errors >= 4).await;
    proxy.reset_counts();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let scripts = proxy.requests()["EVALSHA"];
    assert!((4..100).contains(&scripts), "{scripts} scripts in four seconds");
    let lines: Vec<_> = log.lines().into_iter().filter(|line| line.contains("DESTROYING")).collect();
    let [line] = &lines[..] else { panic!("{} lines: {:#?}", lines.len(), log.lines()) };
    assert!(line.contains("WARN") && line.contains("call Console::destroy"), "{line}");
    console.destroy(&topic).forced().await.unwrap();
    assert!(schedule.arm(&topic, 2, Duration::ZERO, &5).await.unwrap().is_armed());
    assert_eq!(ran.next().await, 5);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_listener_of_a_closed_attached_topic_goes_on_when_it_is_back() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let console = console(&server);
    let attached = Attached::new(Topic::<()>::named("order", "app:order:{id}").unwrap());
    let (handler, mut ran) = reporting(|lapse: Lapse<Expired<()>>| (lapse.key().to_vec(), Ok(Done)));
    let proxy = Proxy::before(&server).await;
    let running = Running::start(Listener::builder(proxy.app_url()).attach(attached.clone(), handler));
    running.until_anchored().await;
    let at = PartitionNames::new(DEFAULT_NAMESPACE, "order", 0, 1, true);
    Client::new(&server.app_url()).unwrap().store().clone().close(&at, CloseMode::Empty).await.unwrap();
    for id in 0..20 {
        server.cmd(&["SET", &format!("app:order:{id}"), "7", "PX", "100"]).await;
    }
    proxy.reset_counts();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let scripts = proxy.requests()["EVALSHA"];
    assert!(scripts < 200, "{scripts} scripts in six seconds");
    let loud: Vec<_> = log.lines().into_iter().filter(|line| line.contains("DESTROYING")).collect();
    let loud: Vec<_> = loud.iter().filter(|line| !line.starts_with("DEBUG")).collect();
    assert!(loud.len() <= 2, "{loud:#?}");
    console.destroy(attached.topic()).forced().await.unwrap();
    server.cmd(&["SET", "app:order:after", "7", "PX", "100"]).await;
    while ran.next().await != b"app:order:after" {}
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_missing_right_is_named_before_anything_is_closed() {
    let (server, schedule) = server_and_schedule().await;
    arm(&schedule, &orders(), 0..10).await;
    server.cmd(&["ACL", "SETUSER", APP_USER, "clearselectors", "(+publish +spublish &keylapse:*)"]).await;
    let poor = Console::connect(&*server.url_for(APP_USER, APP_PASSWORD)).await.unwrap();
    let refused = poor.destroy(&orders()).forced().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Permission);
    assert!(refused.to_string().contains("unlink"), "{refused}");
    let default = Schedule::connect(&server.url()).await.unwrap();
    assert!(default.look_up(&orders(), 1).await.unwrap().is_some(), "it is open");
    // Trigger keys that may not be touched stay, and nothing else.
    server.cmd(&["ACL", "SETUSER", "narrow", "on", ">pass", "+@all", "~keylapse:*", "&*"]).await;
    let narrow = Console::connect(&*server.url_for("narrow", "pass")).await.unwrap();
    let destroyed = narrow.destroy(&orders()).forced().await.unwrap();
    assert_eq!((destroyed.timers, destroyed.marker_keys), (10, 0));
    assert_eq!(left(&server).await, gone());
    assert_eq!(keys(&server, "app:order:*").await.len(), 10);
}
