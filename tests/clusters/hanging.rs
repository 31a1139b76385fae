//! A primary that hangs for less time than the others wait: nobody takes its place.

use std::time::Duration;

use keylapse::testing::Cluster;

use crate::load::{FIRST, Load};

/// What is armed there meanwhile starts late, once, and nothing else is late.
async fn hangs_for(time: Duration) {
    let cluster = Cluster::builder().node_timeout(Duration::from_secs(15)).start().await.unwrap();
    let every = Duration::from_millis(4);
    // As many again after it as until its end.
    let count = u32::try_from(2 * (time + Duration::from_secs(2)).as_millis() / every.as_millis()).unwrap();
    let load = Load::start(&cluster, 8, count, every).await;
    load.until_handled(300).await;
    let primary = cluster.owner_of_key(FIRST).await.unwrap();
    let harm = async {
        primary.stop().unwrap();
        tokio::time::sleep(time).await; // the fault itself
        primary.go_on().unwrap();
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(harm).await;
    assert_eq!(cluster.owner_of_key(FIRST).await.as_ref(), Ok(&primary), "nobody was promoted");
    let outcome = load.end().await;
    outcome.assert_kept();
    let (median, latest) = (outcome.median(), outcome.latest());
    assert!(latest > time.as_millis() as i64 / 2, "the last was {latest} ms late: was there a fault?");
    assert!(latest < time.as_millis() as i64 + 6000, "the last was {latest} ms late");
    assert!(median < 200, "half of them were later than {median} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_primary_holds_that_hangs_for_three_seconds_starts_late_and_once() {
    hangs_for(Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-clusters-long"]
async fn what_a_primary_holds_that_hangs_for_ten_seconds_starts_late_and_once() {
    hangs_for(Duration::from_secs(10)).await;
}
