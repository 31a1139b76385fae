//! Many partitions, and listeners that come after others.

use std::future::ready;
use std::time::Duration;

use crate::listening::line::slow_line;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::listening::{arm, bed_with, cancel, listen, ms, secs, succeed, topic};
use keylapse::Lapse;
use keylapse::Listener;
use keylapse::Topic;
use keylapse::handler::LapseSource;
use keylapse::{Done, Failure};
use keylapse_testing::TestBed;

/// One way; there and back takes twice as long.
const LINE: Duration = Duration::from_micros(1250);

type Starts = mpsc::UnboundedReceiver<Instant>;

/// A listener behind a slow line, and when its handlers start.
fn listen_from_afar(bed: &TestBed, topic: &Topic<u32>) -> Starts {
    let (started, starts) = mpsc::unbounded_channel();
    let handler = move |_: Lapse<u32>| {
        let _ = started.send(Instant::now());
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let server = bed.server();
    let client = bed.client().connect_with(move || ready(Ok(slow_line(server.connect(), LINE))));
    let listener = Listener::builder(client).on(topic.clone(), handler).build().unwrap();
    tokio::spawn(listener.run_until(std::future::pending::<()>()));
    starts
}

async fn arm_each(bed: &TestBed, topic: &Topic<u32>, ids: std::ops::Range<u32>, delay: Duration) {
    let arms = ids.map(|id| keylapse::NewArm::new([id.to_string()], delay, 0));
    for armed in bed.schedule().arm_many(topic, arms).await.unwrap() {
        assert!(armed.unwrap().is_armed());
    }
}

async fn next(starts: &mut Starts, count: usize) -> Vec<Instant> {
    let mut all = Vec::new();
    while all.len() < count {
        all.push(starts.recv().await.expect("it goes on"));
    }
    all
}

/// How late the median of 64 timers of one moment is, and the last.
async fn lateness(partitions: u32) -> (Duration, Duration) {
    let (bed, topic) = (TestBed::counting(), topic().partitions(partitions));
    let mut starts = listen_from_afar(&bed, &topic);
    bed.advance(secs(1)).await;
    let due = Instant::now() + secs(1);
    arm_each(&bed, &topic, 0..64, secs(1)).await;
    let mut late: Vec<_> = next(&mut starts, 64).await.into_iter().map(|at| at - due).collect();
    late.sort();
    (late[32], late[63])
}

#[tokio::test(start_paused = true)]
async fn over_a_slow_line_64_partitions_are_as_punctual_as_one() {
    let (one, many) = (lateness(1).await, lateness(64).await);
    println!("one partition: {one:?}, 64: {many:?}");
    assert!(many.0 <= one.0.max(LINE) * 2, "{many:?}, of one partition {one:?}");
    // What shares a partition with others takes another claim or two.
    assert!(many.1 <= LINE * 8, "{many:?}, of one partition {one:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_overdue_in_1024_partitions_runs_within_a_second_of_the_start() {
    let (bed, topic) = (TestBed::counting(), topic().partitions(1024));
    arm_each(&bed, &topic, 0..2048, Duration::ZERO).await;
    let began = Instant::now();
    let starts = next(&mut listen_from_afar(&bed, &topic), 2048).await;
    println!("first after {:?}, last after {:?}", starts[0] - began, starts[2047] - began);
    assert!(starts[0] - began < ms(100), "{:?}", starts[0] - began);
    assert!(starts[2047] - began < secs(1), "{:?}", starts[2047] - began);
}

/// Whoever finds nothing at a deadline is alone all the same: it was cancelled.
async fn find_nothing_a_few_times(bed: &TestBed) {
    for id in ["a", "b", "c", "d", "e", "f"] {
        arm(bed, id, ms(100), 0).await;
        let _ = cancel(bed, id).await;
        bed.advance(ms(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_listener_leads_after_one_that_has_died() {
    let (bed, dead) = bed_with(topic(), succeed).await;
    arm(&bed, "1", secs(1), 0).await;
    bed.advance(secs(2)).await;
    assert_eq!(bed.all_runs().len(), 1);
    dead.crash().await;
    let _alone = listen(&bed, topic(), succeed).await;
    find_nothing_a_few_times(&bed).await;
    arm(&bed, "2", secs(1), 0).await;
    bed.advance(secs(2)).await;
    let run = bed.all_runs().pop().unwrap();
    assert_eq!((run.lateness, run.source), (Duration::ZERO, LapseSource::Timer));
}
