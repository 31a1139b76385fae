//! Canaries that the server never made, and those of a server whose numbers were set anew. Anybody may publish the
//! first, so nothing that is real may be lost by them.

use std::time::Duration;

use futures::future::join_all;
use keylapse::Expiry;
use keylapse::attach::Treatment;
use keylapse_support::eventually;

use crate::scene::{ALL_FLAGS, Harness, Notes, PATIENCE, now, orders_with_values, until_time};

const COUNTER: &str = "keylapse:{heartbeat/0}";
const TOMORROW: u64 = 86_400_000;

/// Where an announcement counts only if the key's deadline was read.
async fn strict(flags: &str) -> Harness {
    let topic = orders_with_values().untracked(Treatment::Ignore).scan_every(Duration::from_millis(100));
    Harness::with(flags, topic, Notes::handler).await
}

impl Harness {
    /// Publishes a canary as if it had expired.
    async fn forge(&self, number: u64, before: u64) {
        self.cmd(&["PUBLISH", "__keyevent@0__:expired", &format!("{COUNTER}:{number}:{before}")]).await;
    }

    /// The number of the last canary that the server has made.
    async fn last_canary(&self) -> u64 {
        let last: String = redis::from_redis_value(self.cmd(&["GET", COUNTER]).await).unwrap();
        last.split(':').next().unwrap().parse().unwrap()
    }

    fn refused(&self) -> u64 {
        self.listener.stats.listener().refused_heartbeats
    }
}

#[tokio::test]
async fn canaries_of_the_future_and_of_the_past_change_nothing() {
    for flags in ["Ex", ALL_FLAGS] {
        let harness = strict(flags).await;
        let mut forged = 0;
        let forge = async || {
            let last = harness.last_canary().await;
            for number in [last + TOMORROW, 9_999_999_999_999, u64::MAX, last - 1, 1] {
                for before in [last, number - 1] {
                    harness.forge(number, before).await;
                    forged += 1;
                }
            }
            eventually(PATIENCE, "all to be refused", async || harness.refused() >= forged).await;
        };
        let deadline = harness.enrol_and(&["1"], "a sofa", 3000, forge).await;
        let run = harness.fires_once("1", "a sofa", deadline).await;
        assert_eq!(run.expiry, Expiry::Announced, "{flags}");
        let next = harness.enrol("2", "a lamp", 1000).await;
        assert_eq!(harness.fires_once("2", "a lamp", next).await.expiry, Expiry::Announced, "{flags}");
        let counted = harness.listener.attached();
        assert_eq!((counted.ambiguous, counted.stale, counted.recovered), (0, 0, 0), "{flags}: {counted:?}");
        harness.listener.stop().await;
    }
}

/// The most that can be done to positions: each of these breaks the chain, or is the next in it.
#[tokio::test]
async fn canaries_of_the_present_lose_nothing_and_make_nothing_early() {
    for flags in ["Ex", ALL_FLAGS] {
        let harness = strict(flags).await;
        let mut deadlines = Vec::new();
        for id in 0..30 {
            deadlines.push(harness.write(&id.to_string(), "a sofa", 2500 + 100 * id).await);
        }
        harness.listener.until_enrolled(30).await;
        for round in 0.. {
            let (last, number) = (harness.last_canary().await, now() + round % 5);
            harness.forge(number, if round % 3 == 0 { last } else { number - 7 }).await;
            if number > *deadlines.last().unwrap() {
                break;
            }
            until_time(number + 40).await;
        }
        for (id, deadline) in deadlines.into_iter().enumerate() {
            let id = id.to_string();
            eventually(PATIENCE, "it to fire", async || !harness.of(&id).is_empty()).await;
            let runs = harness.of(&id);
            assert!(runs.iter().all(|run| run.at >= deadline), "{flags}: early: {runs:?}");
        }
        assert_eq!(harness.listener.attached().stale, 0, "{flags}");
        harness.listener.stop().await;
    }
}

/// As after a step of the clock, or with the data of yesterday.
#[tokio::test]
async fn numbers_that_were_set_anew_are_followed_after_a_gap() {
    let scene =
        async |flags| {
            let harness = strict(flags).await;
            for (step, number) in ["none", "tomorrow", "none", "yesterday", "beyond all counting"]
                .iter()
                .zip([None, Some(now() + TOMORROW), None, Some(now() - TOMORROW), Some(u64::MAX)])
            {
                let before = harness.enrol(&format!("{step} before"), "a sofa", 2500).await;
                match number {
                    Some(number) => harness.cmd(&["SET", COUNTER, &format!("{number}:7")]).await,
                    None => harness.cmd(&["DEL", COUNTER]).await,
                };
                let run = harness.only(&format!("{step} before")).await;
                assert!(run.at >= before, "{flags}, {step}: early: {run:?}");
                let after = harness.enrol(&format!("{step} after"), "a lamp", 1000).await;
                let run = harness.fires_once(&format!("{step} after"), "a lamp", after).await;
                assert_eq!(run.expiry, Expiry::Announced, "{flags}, {step}");
                harness.notes.runs().clear();
            }
            assert_eq!(harness.listener.attached().stale, 0, "{flags}");
            harness.listener.stop().await;
        };
    join_all(["Ex", ALL_FLAGS].map(scene)).await;
}
