//! What a listener without work sends to each primary. Counted, not timed.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse::{Done, Failure, Lapse, Listener, Topic};
use keylapse_support::Proxy;
use keylapse_testing::LocalCluster;
use keylapse_wire::scripts;

use crate::support::{Running, show_log};

/// Four calm sweeps, four reports, twenty canaries.
const WINDOW: Duration = Duration::from_secs(20);

/// Asserts it of a lone listener whose topic has so many partitions.
async fn assert_three_a_second(partitions: u32) {
    show_log();
    let host = Proxy::BESIDE.to_string();
    let builder = LocalCluster::builder().replicas_per_primary(0).announced_host(&host);
    let cluster = builder.start().await.unwrap();
    let proxies = join_all(cluster.nodes().iter().map(|node| Proxy::beside_port(node.port()))).await;
    for node in cluster.nodes() {
        for script in scripts::all() {
            node.command(["SCRIPT", "LOAD", &script.text]).await.unwrap();
        }
    }
    let topic = Topic::<u32>::new("app:idle:{id}").unwrap().partitions(partitions);
    let nothing = |_: Lapse<u32>| std::future::ready(Ok::<_, Failure>(Done));
    let running = Running::start(Listener::builder(cluster.url()).on(topic, nothing));
    // Each primary is swept when it is found, when it is heard, and five seconds later.
    running.until("the listener to settle", |stats| stats.listener().sweeps >= 9).await;

    proxies.iter().for_each(Proxy::reset_counts);
    let begun = Instant::now();
    tokio::time::sleep(WINDOW).await; // this is what is measured
    let seconds = begun.elapsed().as_secs_f64();
    for proxy in &proxies {
        let rate = proxy.batches() as f64 / seconds;
        println!("{partitions} partitions, {rate:.2} requests a second: {:?}", proxy.requests());
        assert!(rate <= 3.0, "{rate:.2} requests a second: {:?}", proxy.requests());
    }
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_listener_sends_at_most_three_requests_a_second_to_each_primary() {
    assert_three_a_second(6).await;
}

/// One request looks at all that a primary has; but the slow repair takes five minutes for all of it, and so is faster.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_listener_sends_no_more_than_that_with_64_partitions() {
    assert_three_a_second(64).await;
}
