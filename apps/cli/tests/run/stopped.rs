//! It is told to stop, while receivers are told.

use std::time::Duration;

use crate::run::program::ids_by_key;
use crate::run::{Receiver, Scene, Then};

const TIMERS: usize = 300;

/// What runs is finished: nobody is told twice, and no attempt is used up.
#[tokio::test(flavor = "multi_thread")]
async fn by_term_it_ends_in_order_and_another_goes_on() {
    let receiver = Receiver::start(|_, _| Then::Late(Duration::from_millis(20), 200)).await;
    let scene = Scene::new().await;
    scene.write(
        "keylapse.toml",
        &format!(
            "[topics.orders]\npattern = \"order:{{id}}\"\nconcurrency = 8\n\
             [topics.orders.webhook]\nurl = \"{}\"\nallow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\n",
            receiver.url()
        ),
    );
    scene.arm(0..TIMERS).await;
    for _ in 0..3 {
        let mut program = scene.run();
        receiver.calls(receiver.count() + 50).await;
        program.signal("TERM");
        let status = program.ended().await;
        assert!(status.success(), "{status}: {}", program.lines().join("\n"));
    }
    let _last = scene.run();
    scene.none_left().await;
    let calls = receiver.calls(TIMERS).await;
    let ids = ids_by_key(&calls);
    assert_eq!((ids.len(), calls.len()), (TIMERS, TIMERS));
    assert!(calls.iter().all(|call| call.json()["data"]["attempt"] == 1));
}

/// What does not end in time is handed back at once, and runs elsewhere without waiting for its lease.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_in_time_is_handed_back() {
    let receiver = Receiver::start(|call, _| if call == 1 { Then::Hang } else { Then::status(200) }).await;
    let scene = Scene::new().await;
    scene.write(
        "keylapse.toml",
        &format!(
            "grace = \"100ms\"\n[topics.orders]\npattern = \"order:{{id}}\"\nlease = \"10m\"\n\
             [topics.orders.webhook]\nurl = \"{}\"\nallow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\ntimeout = \"5m\"\n",
            receiver.url()
        ),
    );
    scene.arm(0..1).await;
    let mut program = scene.run();
    receiver.calls(1).await;
    program.signal("TERM");
    assert!(program.ended().await.success(), "{}", program.lines().join("\n"));
    let _other = scene.run();
    let calls = receiver.calls(2).await;
    assert_eq!((calls[0].id(), calls[1].json()["data"]["attempt"].as_u64()), (calls[1].id(), Some(1)));
}
