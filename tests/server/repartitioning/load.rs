//! Producers and listeners go on while the topic is repartitioned, and nothing is lost or doubled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylapse::{Client, Done, ErrorKind, Failure, Lapse, ListenerBuilder, NewArm, Schedule};
use keylapse_support::{Server, eventually, times_are_judged};

use super::{LONG, orders};
use crate::server::console;
use crate::server::support::{PATIENCE, Running, listener, server_and_schedule};

type Ran = Arc<Mutex<BTreeMap<u32, u32>>>;

fn counting(server: &Server, of: u32, ran: &Ran) -> ListenerBuilder {
    let ran = ran.clone();
    let handler = move |lapse: Lapse<u32>| {
        let ran = ran.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            *ran.lock().unwrap().entry(*lapse.payload()).or_default() += 1;
            Ok::<_, Failure>(Done)
        }
    };
    listener(server).on(orders().partitions(of), handler)
}

/// Arms until it is told to stop, with the number that it is told; what was acknowledged.
async fn produce(
    server_url: String,
    producer: u32,
    mut numbers: Vec<u32>,
    done: Arc<AtomicBool>,
) -> (Vec<u32>, u32) {
    let client = Client::new(&server_url).unwrap().retry_for(Duration::from_millis(100));
    let schedule = Schedule::connect(client).await.unwrap();
    let (mut armed, mut refused, mut topic) = (Vec::new(), 0, orders().partitions(numbers.remove(0)));
    for number in 0.. {
        let id = producer * 1_000_000 + number;
        if done.load(Ordering::SeqCst) {
            return (armed, refused);
        }
        match schedule.arm(&topic, id, Duration::from_millis(u64::from(number % 50)), &id).await {
            Ok(_) => armed.push(id),
            Err(error) if error.kind() == ErrorKind::Repartitioning => refused += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Partitions, "{error}");
                topic = topic.partitions(numbers.remove(0));
            }
        }
    }
    unreachable!()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_each_timer_that_was_acknowledged_runs_once() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    let (ran, done) = (Ran::default(), Arc::new(AtomicBool::new(false)));
    let first = [counting(&server, 4, &ran), counting(&server, 4, &ran)].map(Running::start);
    for running in &first {
        running.until_anchored().await;
    }
    let producers: Vec<_> = (1..=4)
        .map(|producer| tokio::spawn(produce(server.app_url(), producer, vec![4, 8, 3], done.clone())))
        .collect();
    let enough = async |count: usize| {
        eventually(PATIENCE, "timers to run", async || ran.lock().unwrap().len() >= count).await;
    };
    enough(500).await;
    let wider = console.repartition(&orders(), 8).await.unwrap();
    let second = [counting(&server, 8, &ran), counting(&server, 8, &ran)].map(Running::start);
    let so_far = ran.lock().unwrap().len();
    enough(so_far + 500).await;
    let narrower = console.repartition(&orders(), 3).await.unwrap();
    let third = Running::start(counting(&server, 3, &ran));
    let so_far = ran.lock().unwrap().len();
    enough(so_far + 500).await;
    done.store(true, Ordering::SeqCst);
    let (mut armed, mut refused) = (Vec::new(), 0);
    for producer in producers {
        let (some, refusals) = producer.await.unwrap();
        armed.extend(some);
        refused += refusals;
    }
    eventually(PATIENCE, "all to run", async || ran.lock().unwrap().len() >= armed.len()).await;
    for running in first.into_iter().chain(second).chain([third]) {
        running.stop().await.unwrap();
    }
    let ran = ran.lock().unwrap().clone();
    let lost = armed.iter().filter(|id| !ran.contains_key(id)).count();
    let doubled = ran.values().filter(|count| **count > 1).count();
    println!(
        "armed={} refused={refused} lost={lost} doubled={doubled}; {wider:?}, {narrower:?}",
        armed.len()
    );
    assert_eq!((lost, doubled, ran.len()), (0, 0, armed.len()));
}

/// For how long depends on the machine: it is said, and not judged.
#[tokio::test(flavor = "multi_thread")]
async fn timed_a_hundred_thousand_timers_are_moved_in_calls_that_hold_nobody_up() {
    const TIMERS: usize = 100_000;
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = orders().marker_keys(false);
    for armed in schedule.arm_many(&topic, (0..TIMERS).map(|id| NewArm::new(id, LONG, 7))).await.unwrap() {
        assert!(armed.unwrap().is_armed());
    }
    server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "50000", "slowlog-max-len", "1000"]).await;
    server.cmd(&["SLOWLOG", "RESET"]).await;
    let began = Instant::now();
    let done = console.repartition(&topic, 8).await.unwrap();
    println!(
        "{TIMERS} timers from 4 to 8 partitions: {} moved in {:?}, nothing could be armed for {:?}",
        done.timers,
        began.elapsed(),
        done.closed_for
    );
    let redis::Value::Array(slow) = server.cmd(&["SLOWLOG", "GET", "-1"]).await else { panic!("an array") };
    // That is the time by the clock: now and then somebody else has the processor meanwhile.
    let is_quick = slow.len() <= 5 || !times_are_judged();
    assert!(is_quick, "{} of some hundred calls took 50 ms: {slow:?}", slow.len());
    assert!((40_000..60_000).contains(&done.timers), "{done:?}");
    let wider = topic.partitions(8);
    for id in (0..TIMERS).step_by(997) {
        assert!(schedule.look_up(&wider, id).await.unwrap().is_some(), "{id}");
    }
}
