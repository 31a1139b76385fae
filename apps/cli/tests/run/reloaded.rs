//! It is told to read its file again.

use std::time::Duration;

use keylapse_support::eventually;

use crate::run::program::{PATIENCE, ids_by_key};
use crate::run::{Receiver, Scene, Then};

const AGAIN: &str = "the configuration file was reloaded";
const ENDED: &str = "keylapse::listener::run: stopped";
const REFUSED: &str = "the configuration file was not reloaded";

/// Timers, and keys of other programs, told to this path.
fn file(receiver: &Receiver, path: &str, settings: &str) -> String {
    let webhook = |topic: &str| {
        format!(
            "[topics.{topic}.webhook]\nurl = \"http://{}/{path}\"\nallow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\n",
            receiver.host()
        )
    };
    format!(
        "[topics.orders]\npattern = \"order:{{id}}\"\n{settings}\n{}\n[topics.carts]\nattach = \"cart:{{id}}\"\n{}",
        webhook("orders"),
        webhook("carts")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_nothing_is_lost_and_nothing_is_told_twice() {
    let receiver = Receiver::start(|_, _| Then::Late(Duration::from_millis(5), 200)).await;
    let scene = Scene::new().await;
    scene.write("keylapse.toml", &file(&receiver, "0", ""));
    let program = scene.run();
    eventually(PATIENCE, "keys to be enrolled", async || {
        scene.server.cmd(&["SET", "cart:probe", "1", "EX", "1000"]).await;
        scene.server.cmd(&["HEXISTS", "keylapse:{carts/0}:tracked", "cart:probe"]).await
            == redis::Value::Int(1)
    })
    .await;
    let (rounds, each, carts) = (4, 150, 30);
    for round in 1..=rounds {
        // Due before, while and after the one listener follows the other.
        scene.arm((round - 1) * each..round * each).await;
        for cart in 0..carts {
            let (key, ms) = (format!("cart:{round}-{cart}"), (50 + 10 * cart).to_string());
            scene.server.cmd(&["SET", &key, "1", "PX", &ms]).await;
        }
        scene.write("keylapse.toml", &file(&receiver, &round.to_string(), ""));
        program.signal("HUP");
        program.has_said(AGAIN, round).await;
    }
    let all = rounds * (each + carts);
    scene.none_left().await;
    let keys = (0..rounds * each).map(|number| format!("order:{number}"));
    let carts = (1..=rounds).flat_map(|round| (0..carts).map(move |cart| format!("cart:{round}-{cart}")));
    let keys: Vec<_> = keys.chain(carts).collect();
    let calls = tokio::time::timeout(PATIENCE / 3, receiver.calls(all)).await;
    let calls = calls.unwrap_or_else(|_| receiver.received());
    let ids = ids_by_key(&calls);
    let missing: Vec<_> = keys.iter().filter(|key| !ids.contains_key(*key)).collect();
    assert!(missing.is_empty(), "{missing:?} were not delivered:\n{}", program.lines().join("\n"));
    assert_eq!((ids.len(), receiver.count()), (all, all), "{}", program.lines().join("\n"));
    let paths: std::collections::BTreeSet<_> = calls.iter().map(|call| call.line.clone()).collect();
    assert!(paths.len() > 1, "{paths:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said_and_all_goes_on_as_before() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let scene = Scene::new().await;
    let well = file(&receiver, "well", "");
    scene.write("keylapse.toml", &well);
    let program = scene.run();
    scene.arm(0..1).await;
    receiver.calls(1).await;
    let broken = [
        (well.replace("pattern =", "patern ="), "do you mean pattern?"),
        (file(&receiver, "x", "partitions = 4"), "partitions"),
        (well.replace("order:{id}", "cart:{nr}"), "cart:{nr}"),
        (well.replace("file = \"secret\"", "file = \"nowhere\""), "nowhere"),
    ];
    for (number, (text, said)) in broken.iter().enumerate() {
        scene.write("keylapse.toml", text);
        program.signal("HUP");
        program.has_said(REFUSED, number + 1).await;
        let log = program.lines().join("\n");
        assert!(log.lines().any(|line| line.contains(REFUSED) && line.contains(said)), "{said}: {log}");
    }
    scene.remove("keylapse.toml");
    program.signal("HUP");
    program.has_said(REFUSED, broken.len() + 1).await;
    assert!(program.lines().join("\n").contains("cannot read the file"), "{}", program.lines().join("\n"));

    scene.arm(1..2).await;
    assert_eq!(receiver.calls(2).await[1].line, "POST /well HTTP/1.1");
    scene.write("keylapse.toml", &file(&receiver, "other", ""));
    program.signal("HUP");
    program.has_said(AGAIN, 1).await;
    // The one before has a claim under way, perhaps, and tells what that brings as its file said.
    program.has_said(ENDED, 1).await;
    scene.arm(2..3).await;
    assert_eq!(receiver.calls(3).await[2].line, "POST /other HTTP/1.1");
}

/// Whoever waits for a server to come back can still stop it.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_it_can_be_stopped() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let scene = Scene::new().await;
    scene.write("keylapse.toml", &file(&receiver, "0", ""));
    let mut program = scene.run();
    scene.arm(0..1).await;
    receiver.calls(1).await;
    scene.server.stop();
    program.signal("HUP");
    program.signal("TERM");
    assert!(program.ended().await.success(), "{}", program.lines().join("\n"));
}
