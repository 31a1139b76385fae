//! P4, P7 and P9 where the listener has a thread of its own: one owner for each attempt, whatever happens to lines,
//! runtimes and listeners.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keylapse::timers::ArmingId;
use keylapse::{Cancelled, Done, ErrorKind, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_support::{Direction, Proxy, Server, eventually, took_at_most};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::server::capture::Capture;
use crate::server::support::{
    PATIENCE, Running, arm, listener, reporting, reports, server_and_schedule, until_lost,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How many there are, waiting or running.
async fn timers(server: &Server, topic: &Topic<u32>) -> i64 {
    let records = format!("keylapse:{{{}/0}}:timers", topic.name());
    redis::from_redis_value(server.cmd(&["HLEN", &records]).await).expect("a number")
}

/// A runtime whose threads handlers block. It is not waited for at the end.
struct Blocked(Option<Runtime>);

impl Blocked {
    fn with_threads(count: usize) -> Self {
        Self(Some(Builder::new_multi_thread().worker_threads(count).enable_all().build().expect("a runtime")))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().expect("it is there").handle().clone()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Where handlers wait and block their threads.
#[derive(Default)]
struct Wall {
    open: Mutex<bool>,
    opens: Condvar,
}

impl Wall {
    fn block(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opens.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }

    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opens.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_handler_on_a_frozen_line_is_told_before_another_starts() {
    let (server, schedule) = server_and_schedule().await;
    let proxy = Proxy::before(&server).await;
    let topic = Topic::<u32>::new("app:frozen:{id}").unwrap().lease(ms(2000));
    let (handler, mut frozen) = until_lost(|| Ok(Done));
    let first = Running::start(Listener::builder(proxy.app_url()).on(topic.clone(), handler));
    arm(&schedule, &topic, "1", Duration::ZERO, 0).await;
    assert_eq!(frozen.next().await, "started");
    proxy.stall(Direction::Both);
    let (handler, mut others) = reporting(|lapse: Lapse<u32>| (lapse.is_redelivered(), Ok(Done)));
    let second = Running::start(listener(&server).on(topic, handler));
    assert!(others.next().await);
    assert_eq!(frozen.try_next(), Some("told to stop"), "before the other one started");
    proxy.resume();
    second.stop().await.unwrap();
    first.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_listener_that_is_dropped_and_another_runs_what_it_held() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:dropped:{id}").unwrap().lease(ms(1000));
    for round in 0..20 {
        arm(&schedule, &topic, &round.to_string(), Duration::ZERO, 0).await;
        let alive = Arc::new(());
        let (seen, mut started) = reports();
        let held = alive.clone();
        let handler = move |lapse: Lapse<u32>| {
            let (held, seen, lapse) = (held.clone(), seen.clone(), Arc::new(lapse));
            async move {
                seen.send(lapse.clone()).ok();
                lapse.lease_lost().await;
                let _held = held;
                std::future::pending::<Result<Done, Failure>>().await
            }
        };
        let listening = listener(&server).on(topic.clone(), handler).build().unwrap();
        let lapse = tokio::select! {
            _ = listening.run_until(std::future::pending::<()>()) => panic!("it listens"),
            lapse = started.next() => lapse,
        };
        assert!(!lapse.has_lease(), "from the moment of the drop");
        eventually(PATIENCE, "it is all gone", async || Arc::strong_count(&alive) == 1).await;
    }
    let (handler, mut others) = reporting(|lapse: Lapse<u32>| (lapse.is_redelivered(), Ok(Done)));
    let second = Running::start(listener(&server).on(topic, handler));
    for _ in 0..20 {
        assert!(others.next().await, "when the leases end");
    }
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_what_is_handed_back_at_shut_down_was_stopped_before() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:handed:{id}").unwrap();
    let finished = Arc::new(Mutex::new(HashMap::<u32, usize>::new()));
    let counting = finished.clone();
    let handler = move |lapse: Lapse<u32>| {
        let counting = counting.clone();
        async move {
            tokio::time::sleep(ms(50)).await;
            *counting.lock().unwrap().entry(*lapse.payload()).or_default() += 1;
            Ok::<_, Failure>(Done)
        }
    };
    let arms = (0..4000_u32).map(|n| keylapse::NewArm::new([n.to_string()], Duration::ZERO, n));
    schedule.arm_many(&topic, arms).await.unwrap();
    while finished.lock().unwrap().len() < 4000 {
        let before = finished.lock().unwrap().len();
        let short = Running::start(listener(&server).on(topic.clone(), handler.clone()).grace(ms(20)));
        short.until("it has done something", |stats| stats.total().claimed > 0).await;
        eventually(PATIENCE, "some more", async || {
            finished.lock().unwrap().len() > before || timers(&server, &topic).await == 0
        })
        .await;
        short.stop().await.unwrap();
    }
    let doubled = finished.lock().unwrap().values().filter(|count| **count > 1).count();
    assert_eq!(doubled, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_handler_costs_its_own_place_and_thread_and_nothing_else() {
    let (server, schedule) = server_and_schedule().await;
    let threads = Blocked::with_threads(2);
    let blocking = Topic::<u32>::new("app:blocking:{id}").unwrap().lease(ms(2500));
    let quick = Topic::<u32>::new("app:quick:{id}").unwrap();
    let wall = Arc::<Wall>::default();
    let inner = wall.clone();
    let block = move |_: Lapse<u32>| {
        let inner = inner.clone();
        async move {
            inner.block();
            Ok::<_, Failure>(Done)
        }
    };
    let (handler, mut ran) = reporting(|_: Lapse<u32>| ((), Ok(Done)));
    let builder = listener(&server).on(blocking.clone(), block).on(quick.clone(), handler);
    let running = Running::start(builder.handlers_on(threads.handle()));
    arm(&schedule, &blocking, "1", Duration::ZERO, 0).await;
    running.until("it blocks", |stats| stats.topic("app.blocking").unwrap().claimed > 0).await;
    let began = Instant::now();
    for n in 0..100_u64 {
        arm(&schedule, &quick, &n.to_string(), ms(50 * n), 0).await;
    }
    for _ in 0..100 {
        ran.next().await;
    }
    assert!(began.elapsed() >= ms(4900), "nearly two leases");
    wall.open();
    running.until("it has ended", |stats| stats.topic("app.blocking").unwrap().handled > 0).await;
    let blocked = running.stats.topic("app.blocking").unwrap();
    assert_eq!((blocked.lost_leases, blocked.fenced, blocked.redelivered), (0, 0, 0), "its lease was kept");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_returns_to_its_runtime_loses_its_lease_at_its_timeout_and_others_run_it() {
    let (server, schedule) = server_and_schedule().await;
    let threads = Blocked::with_threads(1);
    let wall = Arc::<Wall>::default();
    let topic = Topic::<u32>::new("app:ever:{id}").unwrap().lease(ms(600)).timeout(ms(300));
    let (seen, mut started) = reports();
    let inner = wall.clone();
    let block = move |lapse: Lapse<u32>| {
        let (inner, seen) = (inner.clone(), seen.clone());
        async move {
            seen.send(Arc::new(lapse)).ok();
            inner.block();
            Ok::<_, Failure>(Done)
        }
    };
    let stuck = Running::start(listener(&server).on(topic.clone(), block).handlers_on(threads.handle()));
    arm(&schedule, &topic, "1", Duration::ZERO, 0).await;
    stuck.until("its lease is lost", |stats| stats.total().lost_leases == 1).await;
    assert!(!started.next().await.has_lease());
    let (handler, mut others) = reporting(|lapse: Lapse<u32>| (lapse.is_redelivered(), Ok(Done)));
    let second = Running::start(listener(&server).on(topic.clone(), handler));
    assert!(others.next().await);
    second.stop().await.unwrap();
    assert_eq!(stuck.stats.total().handled, 0);
    stuck.stop().await.unwrap();
    wall.open();
}

/// Nothing would ever run, and each attempt would cost its timer a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_handlers_runtime_is_gone_stops_and_says_so() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:gone:{id}").unwrap().lease(ms(600));
    let handlers = Blocked::with_threads(1);
    let (seen, mut started) = reports();
    let wait = move |_: Lapse<u32>| {
        seen.send(()).ok();
        std::future::pending::<Result<Done, Failure>>()
    };
    let running = Running::start(listener(&server).on(topic.clone(), wait).handlers_on(handlers.handle()));
    arm(&schedule, &topic, "runs", Duration::ZERO, 0).await;
    arm(&schedule, &topic, "waits", ms(500), 0).await;
    started.next().await;
    drop(handlers);
    let error = running.ended().await.expect_err("it stops");
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("the runtime of the handlers was shut down"), "{error}");
    let (handler, mut ran) =
        reporting(|lapse: Lapse<u32>| (lapse.capture("id").unwrap_or_default().to_owned(), Ok(Done)));
    let second = Running::start(listener(&server).on(topic, handler));
    let mut both = [ran.next().await, ran.next().await];
    both.sort();
    assert_eq!(both, ["runs", "waits"], "nothing is lost");
    second.stop().await.unwrap();
}

/// A producer who may publish nothing.
async fn unheard(server: &Server) -> Schedule {
    server.cmd(&["ACL", "SETUSER", "unheard", "on", ">secret", "~*", "+@all", "resetchannels"]).await;
    Schedule::connect(server.url_for("unheard", "secret")).await.expect("a schedule")
}

/// The fence is heard, or the canceller may not publish it: then the server is asked before a late start.
#[tokio::test(flavor = "multi_thread")]
async fn p7_what_was_cancelled_while_its_runtime_was_blocked_does_not_start() {
    for fenced in [true, false] {
        let (server, schedule) = server_and_schedule().await;
        let threads = Blocked::with_threads(1);
        let wall = Arc::<Wall>::default();
        let topic = Topic::<u32>::new("app:late:{id}").unwrap().lookahead(ms(500));
        let inner = wall.clone();
        let (handler, mut ran) = reporting(move |lapse: Lapse<u32>| {
            if *lapse.payload() == 0 {
                inner.block();
            }
            (*lapse.payload(), Ok(Done))
        });
        let running =
            Running::start(listener(&server).on(topic.clone(), handler).handlers_on(threads.handle()));
        arm(&schedule, &topic, "blocks", Duration::ZERO, 0).await;
        running.until("it blocks", |stats| stats.total().by_timer + stats.total().by_sweep > 0).await;
        arm(&schedule, &topic, "cancelled", ms(100), 1).await;
        running.until("it is claimed", |stats| stats.total().claimed == 2).await;
        let canceller = if fenced { schedule.clone() } else { unheard(&server).await };
        let cancelled = canceller.cancel(&topic, ["cancelled"]).await.unwrap();
        assert!(matches!(cancelled, Cancelled::Claimed | Cancelled::InFlight), "{cancelled:?}");
        tokio::time::sleep(ms(700)).await; // later than its lookahead and 100 ms
        wall.open();
        assert_eq!(ran.next().await, 0);
        arm(&schedule, &topic, "follows", Duration::ZERO, 2).await;
        assert_eq!(ran.next().await, 2, "and nothing between");
        running.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reader_of_the_log_at_build_reads_what_the_listeners_thread_says() {
    let server = Server::start().await;
    let topic = Topic::<u32>::new("app:log:{id}").unwrap();
    let builder = listener(&server).on(topic, async |_: Lapse<u32>| Ok::<_, Failure>(Done));
    let (log, guard) = Capture::start();
    let listening = builder.build().unwrap();
    drop(guard);
    let says = |word: &str| log.lines().iter().any(|line| line.contains(word));
    let has_begun = eventually(PATIENCE, "it to listen", async || says("listening"));
    listening.run_until(has_begun).await.unwrap();
    assert!(says("stopped"), "{:?}", log.lines());
}

/// Attempts that run, and how often two of one arming saw at one moment that they hold the lease.
#[derive(Default)]
struct Witness {
    live: Mutex<HashMap<ArmingId, Vec<Arc<Lapse<u32>>>>>,
    both: AtomicUsize,
    over: AtomicBool,
}

impl Witness {
    fn watch(self: &Arc<Self>) -> std::thread::JoinHandle<()> {
        let witness = self.clone();
        std::thread::spawn(move || {
            while !witness.over.load(Ordering::Relaxed) {
                witness.look();
                std::thread::sleep(Duration::from_micros(200));
            }
        })
    }

    fn look(&self) {
        let live: Vec<_> = self.live.lock().unwrap().values().filter(|all| all.len() > 1).cloned().collect();
        for all in live {
            for one in &all {
                // The one after the other, and the one again: so there is a moment at which both said yes.
                let mut others = all.iter().filter(|other| !Arc::ptr_eq(one, other));
                let other = one.has_lease() && others.any(|other| other.has_lease());
                self.both.fetch_add(usize::from(other && one.has_lease()), Ordering::Relaxed);
            }
        }
    }

    fn enter(self: &Arc<Self>, lapse: &Arc<Lapse<u32>>) -> Attempt {
        self.live.lock().unwrap().entry(lapse.arming()).or_default().push(lapse.clone());
        Attempt(self.clone(), lapse.clone())
    }
}

struct Attempt(Arc<Witness>, Arc<Lapse<u32>>);

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut live = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.entry(self.1.arming()).or_default().retain(|other| !Arc::ptr_eq(other, &self.1));
    }
}

/// What a handler does next, by chance.
async fn misbehave(lapse: Arc<Lapse<u32>>) -> Result<Done, Failure> {
    let (what, long) = {
        let mut chance = rand::rng();
        (chance.random_range(0..20), chance.random_range(1..1500))
    };
    match what {
        0 => panic!("as asked"),
        1 => std::thread::sleep(ms(long)),
        2..6 => tokio::time::sleep(ms(long)).await,
        6 => lapse.lease_lost().await,
        7 => return Err(Failure::retry("no")),
        _ => tokio::time::sleep(ms(long / 10)).await,
    }
    Ok(Done)
}

/// Lines freeze and break, listeners are dropped and stopped, handlers block and panic.
#[tokio::test(flavor = "multi_thread")]
async fn p4_no_two_attempts_of_one_arming_ever_see_that_they_hold_the_lease() {
    let (server, schedule) = server_and_schedule().await;
    let topic =
        Topic::<u32>::new("app:owned:{id}").unwrap().lease(ms(600)).timeout(ms(1000)).max_attempts(100);
    let topic = topic.retry(keylapse::Backoff::fixed(ms(50)));
    let witness = Arc::<Witness>::default();
    let watching = witness.watch();
    let seed: u64 = std::env::var("KEYLAPSE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    let arms = (0..300_u32).map(|n| keylapse::NewArm::new([n.to_string()], ms(u64::from(n) * 10), n));
    schedule.arm_many(&topic, arms).await.unwrap();

    let until = Instant::now() + Duration::from_secs(10);
    let (mut lives, mut threads) = (Vec::new(), Vec::new());
    for number in 0..3_u64 {
        let proxy = Proxy::before(&server).await;
        let own = Blocked::with_threads(2);
        let (topic, witness, handlers) = (topic.clone(), witness.clone(), own.handle());
        let mut chance = StdRng::seed_from_u64(seed + number);
        threads.push(own);
        lives.push(tokio::spawn(async move {
            while Instant::now() < until {
                let witness = witness.clone();
                let handler = move |lapse: Lapse<u32>| {
                    let lapse = Arc::new(lapse);
                    let attempt = witness.enter(&lapse);
                    async move {
                        let _attempt = attempt;
                        misbehave(lapse).await
                    }
                };
                let builder = Listener::builder(proxy.app_url()).on(topic.clone(), handler);
                let listening = builder.grace(ms(50)).handlers_on(handlers.clone()).build().unwrap();
                let asked = chance.random_bool(0.5);
                let story = async {
                    for _ in 0..chance.random_range(1..4) {
                        tokio::time::sleep(ms(chance.random_range(50..800))).await;
                        match chance.random_range(0..4) {
                            0 => proxy.cut(),
                            1 => proxy.stall(Direction::Both),
                            2 => proxy.stall(Direction::Replies),
                            _ => proxy.resume(),
                        }
                        tokio::time::sleep(ms(chance.random_range(50..1500))).await;
                        proxy.resume();
                    }
                };
                if asked {
                    listening.run_until(story).await.unwrap();
                } else {
                    tokio::select! {
                        _ = listening.run_until(std::future::pending::<()>()) => {}
                        () = story => {} // and it is dropped
                    }
                }
            }
        }));
    }
    for life in lives {
        life.await.unwrap();
    }
    let last =
        Running::start(listener(&server).on(topic.clone(), async |_: Lapse<u32>| Ok::<_, Failure>(Done)));
    eventually(Duration::from_secs(60), "all have ended", async || timers(&server, &topic).await == 0).await;
    last.stop().await.unwrap();
    witness.over.store(true, Ordering::Relaxed);
    watching.join().unwrap();
    assert_eq!(witness.both.load(Ordering::Relaxed), 0, "seed {seed}");
}

/// Cancel, and arm again, while its first holder's line is frozen: two armings, so both run. The first is told when
/// its lease is trusted no longer, at the latest.
#[tokio::test(flavor = "multi_thread")]
async fn timed_an_arming_after_a_cancel_over_a_frozen_line_runs_beside_the_first_for_less_than_a_lease() {
    let (server, schedule) = server_and_schedule().await;
    let proxy = Proxy::before(&server).await;
    let topic = Topic::<u32>::new("app:anew:{id}").unwrap().lease(ms(2000));
    let (seen, mut started) = reports();
    let handler = move |lapse: Lapse<u32>| {
        let (seen, lapse) = (seen.clone(), Arc::new(lapse));
        async move {
            seen.send(lapse.clone()).ok();
            lapse.lease_lost().await;
            Ok::<_, Failure>(Done)
        }
    };
    let first = Running::start(Listener::builder(proxy.app_url()).on(topic.clone(), handler.clone()));
    arm(&schedule, &topic, "1", Duration::ZERO, 0).await;
    let held = started.next().await;
    proxy.stall(Direction::Both);
    let stalled = Instant::now();
    assert_eq!(schedule.cancel(&topic, ["1"]).await.unwrap(), Cancelled::InFlight);
    arm(&schedule, &topic, "1", Duration::ZERO, 1).await;
    let second = Running::start(listener(&server).on(topic.clone(), handler));
    let anew = started.next().await;
    assert_ne!(anew.arming(), held.arming());
    held.lease_lost().await;
    // A call without an answer is given up after five seconds.
    took_at_most(ms(1800 + 1500), stalled.elapsed(), "nine tenths of a lease");
    assert!(anew.has_lease());
    assert_eq!(schedule.cancel(&topic, ["1"]).await.unwrap(), Cancelled::InFlight);
    proxy.resume();
    second.stop().await.unwrap();
    first.stop().await.unwrap();
}
