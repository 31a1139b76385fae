//! Servers and services that take or answer no more than so much at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::{
    ArmResult, Backoff, Cancelled, Done, Expired, Failure, Lapse, Listener, NewArm, Rescheduled, Schedule,
    Topic,
};
use keylapse_console::{Console, EntryState};
use keylapse_support::{Denial, Proxy, Server};
use tokio::sync::Barrier;

use crate::server::capture::Capture;
use crate::server::console;
use crate::server::support::{Running, reporting, until_dead};

/// As many arguments a request as ElastiCache Serverless takes.
const ARGUMENTS: usize = 3999;
const MANY: usize = 2000;
const HOUR: Duration = Duration::from_secs(3600);

/// A server behind a line that takes requests of so many arguments, and a schedule there.
async fn limited() -> (Server, Proxy, Schedule) {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    proxy.deny(|words| words.len() > ARGUMENTS, Denial::Error("ERR too many arguments"));
    let schedule = Schedule::connect(&proxy.app_url()).await.unwrap();
    (server, proxy, schedule)
}

async fn arm(schedule: &Schedule, topic: &Topic<Bytes>, count: usize, payload: &Bytes) {
    let arms = (0..count).map(|id| NewArm::new(id.to_string(), Duration::ZERO, payload.clone()));
    for armed in schedule.arm_many(topic, arms).await.unwrap() {
        assert!(matches!(armed, Ok(ArmResult::Armed(_))), "{armed:?}");
    }
}

fn many_at_once() -> Topic<Bytes> {
    let topic = Topic::<Bytes>::raw("app:many:{id}").unwrap().concurrency(MANY);
    topic.retry(Backoff::table([Duration::from_millis(10)])).max_attempts(2)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_that_fail_together_are_settled_by_a_service_that_takes_few_arguments() {
    let (_server, proxy, schedule) = limited().await;
    let (runs, together) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(MANY)));
    let seen = runs.clone();
    let handler = move |_: Lapse<Bytes>| {
        seen.fetch_add(1, Ordering::Relaxed);
        let together = together.clone();
        async move {
            together.wait().await;
            Err::<Done, _>(Failure::retry("x".repeat(100)))
        }
    };
    let topic = many_at_once();
    arm(&schedule, &topic, MANY, &Bytes::new()).await;
    let builder = Listener::builder(proxy.app_url()).concurrency(MANY + 1).on(topic.clone(), handler);
    let running = Running::start(builder);
    until_dead(&schedule, &topic, MANY as u64).await;
    let total = running.stats.total();
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2 * MANY, "each has two attempts");
    assert_eq!((total.unsettled, total.lost_leases), (0, 0));
    assert!(proxy.longest() <= ARGUMENTS, "{} arguments", proxy.longest());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_leases_are_kept_and_acked_by_a_service_that_takes_few_arguments() {
    let (_server, proxy, schedule) = limited().await;
    let together = Arc::new(Barrier::new(MANY));
    let handler = move |_: Lapse<Bytes>| {
        let together = together.clone();
        async move {
            together.wait().await;
            // Longer than the lease, which is kept.
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok::<_, Failure>(Done)
        }
    };
    let topic = many_at_once().lease(Duration::from_secs(2));
    arm(&schedule, &topic, MANY, &Bytes::new()).await;
    let running = Running::start(Listener::builder(proxy.app_url()).concurrency(MANY + 1).on(topic, handler));
    running.until("all to be handled", |stats| stats.total().handled == MANY as u64).await;
    let stats = running.stats.clone();
    running.stop().await.unwrap();
    let total = stats.total();
    assert_eq!((total.handled, total.gone, total.lost_leases, total.unsettled), (MANY as u64, 0, 0, 0));
    assert!(proxy.longest() <= ARGUMENTS, "{} arguments", proxy.longest());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_are_armed_moved_and_withdrawn_by_a_service_that_takes_few_arguments() {
    let (_server, proxy, schedule) = limited().await;
    let topic = Topic::<Bytes>::raw("app:many:{id}").unwrap();
    let ids = || (0..5000).map(|id| id.to_string());
    let arms = ids().map(|id| NewArm::new(id, HOUR, Bytes::from_static(b"x")));
    let armed = schedule.arm_many(&topic, arms).await.unwrap();
    assert!(armed.into_iter().all(|one| matches!(one, Ok(ArmResult::Armed(_)))));
    let moved = schedule.reschedule_many(&topic, ids().map(|id| (id, 2 * HOUR))).await.unwrap();
    assert!(moved.into_iter().all(|one| matches!(one, Ok(Rescheduled::Rescheduled(_)))));
    let cancelled = schedule.cancel_many(&topic, ids()).await.unwrap();
    assert!(cancelled.into_iter().all(|one| matches!(one, Ok(Cancelled::Cancelled))));
    assert!(proxy.longest() <= ARGUMENTS, "{} arguments", proxy.longest());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_keys_of_other_programs_are_heard_by_a_service_that_takes_few_arguments() {
    const KEYS: usize = 3000;
    let (server, proxy, _schedule) = limited().await;
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "KExg$"]).await;
    let topic = Topic::<Bytes>::raw("app:order:{id}").unwrap().concurrency(KEYS);
    let handler = |_: Lapse<Expired<Bytes>>| std::future::ready(Ok::<_, Failure>(Done));
    let builder = Listener::builder(proxy.app_url()).concurrency(KEYS + 1).attach(topic, handler);
    let running = Running::start(builder);
    running.until_anchored().await;
    let write = "for n = 1, 3000 do redis.call('SET', 'app:order:' .. n, 'x', 'PX', 2000) end";
    server.cmd(&["EVAL", write, "0"]).await;
    running.until("all to be handled", |stats| stats.total().handled == KEYS as u64).await;
    running.stop().await.unwrap();
    assert!(proxy.longest() <= ARGUMENTS, "{} arguments", proxy.longest());
}

/// So many timers of so many bytes, due together: how long the last was late, and what was logged.
async fn late(settings: &[(&str, &str)], count: usize, bytes: usize) -> (Duration, Vec<String>) {
    let (log, _guard) = Capture::start();
    let server = settings.iter().fold(Server::builder(), |all, (name, value)| all.config(name, value));
    let server = server.start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let topic = Topic::<Bytes>::raw("app:large:{id}").unwrap().payload_limit(1 << 20).concurrency(count);
    let payload = Bytes::from(vec![b'x'; bytes]);
    arm(&schedule, &topic, count, &payload).await;
    let handler = |_: Lapse<Bytes>| std::future::ready(Ok::<_, Failure>(Done));
    let began = SystemTime::now();
    let builder = Listener::builder(server.app_url()).concurrency(count + 1).on(topic.clone(), handler);
    let running = Running::start(builder);
    running.until("all to be handled", |stats| stats.total().handled == count as u64).await;
    let took = began.elapsed().unwrap();
    let stats = running.stats.clone();
    running.stop().await.unwrap();
    let total = stats.total();
    assert_eq!((total.handled, total.dead, total.lost_leases, total.gone), (count as u64, 0, 0, 0));
    let left = schedule.dead_letter_counts(&topic).await.unwrap();
    assert_eq!(left, (0, 0), "none is dead");
    (took, log.lines())
}

const SMALL_ANSWERS: (&str, &str) = ("client-output-buffer-limit", "normal 256kb 128kb 10");

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_not_answer_at_once_is_claimed_in_smaller_shares() {
    let (took, log) = late(&[SMALL_ANSWERS], 300, 8 << 10).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let said: Vec<_> = log.iter().filter(|line| line.contains("client-output-buffer-limit")).collect();
    assert!(said.len() == 1 && said[0].contains("WARN"), "{log:#?}");
}

/// Which each has a large payload. A page of them is one answer.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_read_in_smaller_pages_where_the_server_cuts_off_large_answers() {
    let server = Server::builder().config(SMALL_ANSWERS.0, SMALL_ANSWERS.1).start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let topic = Topic::<Bytes>::raw("app:large:{id}").unwrap();
    arm(&schedule, &topic, 150, &Bytes::from(vec![b'x'; 8 << 10])).await;
    let refuse = |_: Lapse<Bytes>| std::future::ready(Err::<Done, _>(Failure::dead("no")));
    let running = Running::start(Listener::builder(server.app_url()).on(topic.clone(), refuse));
    until_dead(&schedule, &topic, 150).await;
    running.stop().await.unwrap();
    let (mut letters, mut read) = (schedule.dead_letters(&topic), 0);
    while letters.next().await.unwrap().is_some() {
        read += 1;
    }
    assert_eq!(read, 150);
    let console = Console::connect(&*server.app_url()).await.unwrap().topic("app.large").await.unwrap();
    let (mut exported, mut after) = (0, None);
    loop {
        let (lines, _, next) = console.export(EntryState::Dead, after.as_ref()).await.unwrap();
        exported += lines.len();
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(exported, 150);
}

/// Timers as well as keys of other programs, now and then.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_closes_when_they_are_idle_cost_nobody_a_warning() {
    let (log, _guard) = Capture::start();
    let server = Server::builder().config("timeout", "1").start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let topic = Topic::<Bytes>::raw("app:idle:{id}").unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<Bytes>| (lapse.lateness(), Ok::<_, Failure>(Done)));
    let (attached, mut expired) =
        reporting(|lapse: Lapse<Expired<Bytes>>| (lapse.lateness(), Ok::<_, Failure>(Done)));
    let orders = Topic::<Bytes>::raw("app:order:{id}").unwrap();
    let builder = Listener::builder(server.app_url()).on(topic.clone(), handler).attach(orders, attached);
    let running = Running::start(builder);
    running.until_anchored().await;
    for id in 0..5 {
        tokio::time::sleep(Duration::from_millis(1300)).await;
        server.cmd(&["SET", &format!("app:order:{id}"), "x", "PX", "1300"]).await;
        let _ =
            schedule.arm(&topic, [id.to_string()], Duration::from_millis(1300), &Bytes::new()).await.unwrap();
        for late in [reported.next().await, expired.next().await] {
            assert!(late < Duration::from_secs(1), "{late:?}");
        }
    }
    running.stop().await.unwrap();
    let lines = log.lines();
    let warned = lines.iter().any(|line| line.starts_with("WARN") || line.starts_with("ERROR"));
    assert!(!warned, "{lines:#?}");
}

/// One such request fails, and says why as far as the server does; nothing else suffers.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_larger_than_the_server_takes_is_refused_alone() {
    for (setting, said) in
        [("proto-max-bulk-len", "invalid bulk length"), ("client-query-buffer-limit", "has no answer")]
    {
        let server = Server::builder().config(setting, "1mb").start().await;
        let schedule = Schedule::connect(&server.app_url()).await.unwrap();
        let topic = Topic::<Bytes>::raw("app:large:{id}").unwrap().payload_limit(8 << 20);
        arm(&schedule, &topic, 150, &Bytes::from(vec![b'x'; 8 << 10])).await;
        let large = schedule.arm(&topic, ["large"], HOUR, &Bytes::from(vec![b'x'; 2 << 20])).await;
        let refused = large.unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
        assert!(schedule.look_up(&topic, "large").await.unwrap().is_none());
        let handler = |_: Lapse<Bytes>| std::future::ready(Ok::<_, Failure>(Done));
        let running = Running::start(Listener::builder(server.app_url()).on(topic.clone(), handler));
        running.until("all others to be handled", |stats| stats.total().handled == 150).await;
        running.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_move_to_other_partitions_where_the_server_cuts_off_large_answers() {
    let server = Server::builder().config(SMALL_ANSWERS.0, SMALL_ANSWERS.1).start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let console = console(&server);
    let topic = Topic::<Bytes>::raw("app:large:{id}").unwrap();
    let large = || Bytes::from(vec![b'x'; 8 << 10]);
    let arms = (0..150).map(|id| NewArm::new(id.to_string(), HOUR, large()));
    assert!(schedule.arm_many(&topic, arms).await.unwrap().into_iter().all(|one| one.is_ok()));
    let moved = console.repartition(&topic, 4).await.unwrap();
    assert_eq!((moved.from, moved.to), (1, 4));
    let wider = topic.partitions(4);
    for id in 0..150 {
        assert!(schedule.look_up(&wider, id.to_string()).await.unwrap().is_some(), "{id}");
    }
}

/// After two lost leases it is tested apart from the others, as what takes its listener down.
#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_is_larger_than_any_answer_dies_and_holds_up_the_others_for_two_leases() {
    let server = Server::builder().config(SMALL_ANSWERS.0, SMALL_ANSWERS.1).start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let lease = Duration::from_secs(1);
    let topic = Topic::<Bytes>::raw("app:large:{id}").unwrap().payload_limit(1 << 20).lease(lease);
    let _ =
        schedule.arm(&topic, ["large"], Duration::ZERO, &Bytes::from(vec![b'x'; 400 << 10])).await.unwrap();
    arm(&schedule, &topic, 100, &Bytes::from(vec![b'x'; 8 << 10])).await;
    let handler = |_: Lapse<Bytes>| std::future::ready(Ok::<_, Failure>(Done));
    let began = std::time::Instant::now();
    let running = Running::start(Listener::builder(server.app_url()).on(topic.clone(), handler));
    running.until("the others to be handled", |stats| stats.total().handled == 100).await;
    let took = began.elapsed();
    until_dead(&schedule, &topic, 1).await;
    running.stop().await.unwrap();
    assert!(took < 4 * lease, "{took:?}");
}
