//! It is killed again and again, while receivers are told.

use std::time::Duration;

use crate::run::program::ids_by_key;
use crate::run::{Receiver, Scene, Then};

/// How many are delivered between two kills. Few of them are under way at each, so that hardly a timer is so often that it
/// is taken for what kills.
const BETWEEN: usize = 50;
const AT_ONCE: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn killed_ten_times_it_loses_nothing_and_repeats_under_the_same_id() {
    kill_again_and_again(10).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute: make faults PLAN=kills-webhooks"]
async fn killed_a_hundred_times_it_loses_nothing_and_repeats_under_the_same_id() {
    kill_again_and_again(100).await;
}

async fn kill_again_and_again(times: usize) {
    let receiver = Receiver::start(|_, _| Then::Late(Duration::from_millis(10), 200)).await;
    let (scene, timers) = (Scene::new().await, (times + 1) * BETWEEN);
    scene.write(
        "keylapse.toml",
        &format!(
            "[topics.orders]\npattern = \"order:{{id}}\"\nlease = \"1s\"\nconcurrency = {AT_ONCE}\n\
             [topics.orders.webhook]\nurl = \"{}\"\nallow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\n",
            receiver.url()
        ),
    );
    scene.arm(0..timers).await;
    for _ in 0..times {
        let program = scene.run();
        receiver.calls(receiver.count() + BETWEEN).await;
        program.kill();
    }
    let last = scene.run();
    scene.none_left().await;
    drop(last);

    let ids = ids_by_key(&receiver.calls(timers).await);
    let delivered = ids.len();
    let repeated: usize = ids.values().map(|ids| ids.len() - 1).sum();
    let doubled = ids.values().filter(|ids| ids.iter().any(|id| *id != ids[0])).count();
    let dead = scene.dead().await;
    println!(
        "kills={times} timers={timers} delivered={delivered} repeated={repeated} dead={dead} doubled_ids={doubled}"
    );
    // A timer that was under way at five kills is a dead letter that says so.
    assert!(
        delivered + dead >= timers && dead <= times / 20,
        "{delivered} delivered and {dead} dead of {timers}"
    );
    assert_eq!(doubled, 0);
    assert!(repeated > 0, "no kill hit a delivery");
}
