//! Who of several topics gets the places, at the speed of a real server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylapse::{Done, Failure, Lapse, ListenerBuilder, NewArm, Priority, Schedule, Topic};
use keylapse_support::{Server, eventually};

use crate::server::support::{Running, listener};

const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
const EACH: usize = 10_000;

/// Ten thousand due timers of each priority, for a listener with four places: how many of each have begun when the
/// last of the high ones begins, and when the last normal one does.
async fn begun(build: impl FnOnce(ListenerBuilder) -> ListenerBuilder) -> [[usize; 3]; 2] {
    let server = Server::start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let mut builder = build(listener(&server).concurrency(4));
    for (number, priority) in ALL.into_iter().enumerate() {
        let topic =
            Topic::<()>::new(&format!("t{number}:{{id}}")).unwrap().priority(priority).marker_keys(false);
        let arms = (0..EACH).map(|id| NewArm::new([id.to_string()], Duration::ZERO, ()));
        assert!(schedule.arm_many(&topic, arms).await.unwrap().into_iter().all(|armed| armed.is_ok()));
        let starts = starts.clone();
        builder = builder.on(topic, move |_: Lapse<()>| {
            starts.lock().unwrap().push(number);
            async {
                tokio::task::yield_now().await;
                Ok::<_, Failure>(Done)
            }
        });
    }
    let running = Running::start(builder);
    let all = async || starts.lock().unwrap().len() == ALL.len() * EACH;
    // Ten seconds of a processor, which other tests and programs may share.
    eventually(Duration::from_secs(300), "all timers to run", all).await;
    running.stop().await.unwrap();
    let starts = starts.lock().unwrap();
    [0, 1].map(|topic| {
        let last = starts.iter().rposition(|start| *start == topic).unwrap();
        [0, 1, 2].map(|topic| starts[..=last].iter().filter(|start| **start == topic).count())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn of_thirty_thousand_due_timers_each_priority_gets_its_part_of_four_places() {
    let [begun, _] = begun(|listener| listener).await;
    eprintln!("begun with the last of the high ones: {begun:?}");
    let all = begun.iter().sum::<usize>() as f64;
    for (begun, weight) in begun.into_iter().zip([0.6, 0.3, 0.1]) {
        let share = begun as f64 / all / weight;
        assert!((0.9..=1.1).contains(&share), "{share} of a share of {weight}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_thirty_thousand_due_timers_a_strict_order_runs_the_high_ones_first() {
    let [first, second] = begun(ListenerBuilder::strict_priorities).await;
    eprintln!("begun with the last of the high ones: {first:?}, and of the normal ones: {second:?}");
    assert_eq!((first[0], second[1]), (EACH, EACH));
    // What was in its reserved place when the listener began.
    assert!(first[1] <= 4 && first[2] <= 4 && second[2] <= 4, "{first:?} {second:?}");
}
