//! A primary that hangs for less time than the others wait: nobody takes its place.

use std::time::Duration;

use crate::attached::beside::Beside;
use crate::load::{FIRST, Load, MANY};

/// What is armed there meanwhile starts late, once, and nothing else is late.
async fn hangs_for(time: Duration) {
    let cluster =
        crate::reach::cluster_builder().node_timeout(Duration::from_secs(15)).start().await.unwrap();
    let mut beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    load.until_handled(300).await;
    let primary = cluster.owner_of_key(FIRST).await.unwrap();
    let harm = async {
        primary.suspend().unwrap();
        tokio::time::sleep(time).await; // the fault itself
        primary.resume().unwrap();
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(beside.harm(harm)).await;
    assert_eq!(cluster.owner_of_key(FIRST).await.as_ref(), Ok(&primary), "nobody was promoted");
    // What nothing has held up outnumbers what hung.
    load.until_more_handled(1000).await;
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    let (median, latest) = (outcome.median(), outcome.latest());
    assert!(latest > time.as_millis() as i64 / 2, "the last was {latest} ms late: was there a fault?");
    assert!(median < 500, "half of them were later than {median} ms");
    beside.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_primary_holds_that_hangs_for_three_seconds_starts_late_and_once() {
    hangs_for(Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-more SUITE=clusters-long"]
async fn what_a_primary_holds_that_hangs_for_ten_seconds_starts_late_and_once() {
    hangs_for(Duration::from_secs(10)).await;
}
