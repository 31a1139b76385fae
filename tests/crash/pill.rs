//! P6: a timer that takes its listener down is isolated and buried, and takes
//! no bystander along.

use std::time::{Duration, Instant};

use keylapse::dead_letters::DeadReason;
use keylapse_support::{Server, eventually};

use crate::crash::child::{Listening, arm, scheduled};

const BYSTANDERS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn p6_a_poison_pill_is_buried_after_five_lost_leases_and_its_bystanders_run() {
    let lease = Duration::from_millis(500);
    let server = Server::start().await;
    let (topic, schedule) = scheduled(&server, "pill", lease).await;
    schedule.pause(&topic, "until all are armed").await.expect("paused");
    for n in 0..BYSTANDERS {
        arm(&schedule, &topic, &n.to_string(), Duration::ZERO, "bystander").await;
    }
    arm(&schedule, &topic, "pill", Duration::ZERO, "abort").await;
    schedule.resume(&topic).await.expect("resumed");
    let began = Instant::now();
    let mut child = Listening::start(&server, "pill", lease);
    let mut restarts = 0;
    let buried = async || {
        if child.has_ended() {
            child = Listening::start(&server, "pill", lease);
            restarts += 1;
        }
        schedule.dead_letter_counts(&topic).await.expect("counts").0 == 1
    };
    eventually(Duration::from_secs(60), "the pill is buried", buried).await;
    let letter = schedule.dead_letters(&topic).page(10).await.expect("letters").remove(0);
    assert_eq!(
        (&letter.key[..], letter.reason, letter.lost_leases),
        (&b"app:pill:pill"[..], DeadReason::LostLeases, 5)
    );
    assert_eq!(restarts, 5, "it took down five listeners, and no more");
    let all_done = async || {
        let mut left = 0;
        for n in 0..BYSTANDERS {
            left += usize::from(schedule.look_up(&topic, [n.to_string()]).await.expect("a look").is_some());
        }
        left == 0
    };
    eventually(Duration::from_secs(60), "the bystanders have run", all_done).await;
    println!(
        "a pill among {BYSTANDERS}: buried after {restarts} listeners, all run after {:?}",
        began.elapsed()
    );
    assert_eq!(schedule.dead_letter_counts(&topic).await.expect("counts").0, 1, "no bystander was buried");
}
