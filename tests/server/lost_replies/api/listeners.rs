//! Claims, acks and retries.

use keylapse::{Cancelled, Done, Failure, Lapse};
use keylapse_support::Then;
use keylapse_wire::scripts;

use super::{BOTH, Line, next_ids, stop, topic};
use crate::server::support::{Running, listener, reporting, until_lost};

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_without_a_reply_still_stops_a_running_attempt() {
    let (line, topic) = (Line::start().await, topic());
    let (handler, mut reported) = until_lost(|| Ok(Done));
    let running = Running::start(listener(&line.server).on(topic.clone(), handler));
    for then in BOTH {
        line.arm(&topic, "1").await;
        assert_eq!(reported.next().await, "started");
        line.lose(&scripts::CANCEL, then);
        let cancelled = line.schedule().cancel(&topic, ["1"]).await.expect("an answer");
        assert_eq!(cancelled, Cancelled::InFlight);
        assert_eq!(reported.next().await, "told to stop");
    }
    assert_eq!(stop(running).await.fenced, 2);
    line.assert_gone(&topic, &["1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_without_a_reply_is_no_reason_to_run_again() {
    let (line, topic) = (Line::start().await, topic());
    BOTH.into_iter().for_each(|then| line.lose(&scripts::ACK, then));
    let (running, mut reported) = line.running(&topic);
    for (lost, id) in [(1, "1"), (2, "2")] {
        line.arm(&topic, id).await;
        assert_eq!(reported.next().await, format!("{id} 1"));
        line.proxy.until_lost(lost).await;
    }
    let stats = stop(running).await;
    assert_eq!((stats.handled, stats.gone, stats.unsettled), (2, 0, 0));
    line.assert_gone(&topic, &["1", "2"]).await;
    assert_eq!(reported.try_next(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_without_a_reply_is_one_retry() {
    let (line, topic) = (Line::start().await, topic());
    BOTH.into_iter().for_each(|then| line.lose(&scripts::SETTLE, then));
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
        let end = if lapse.attempt() == 3 { Ok(Done) } else { Err(Failure::retry("not yet")) };
        ((lapse.attempt(), lapse.history().len()), end)
    });
    let running = Running::start(line.listener().on(topic.clone(), handler));
    line.arm(&topic, "1").await;
    for expected in [(1, 0), (2, 1), (3, 2)] {
        assert_eq!(reported.next().await, expected);
    }
    let stats = stop(running).await;
    assert_eq!((line.proxy.lost(), stats.handled, stats.failed, stats.gone), (2, 1, 2, 0));
    line.assert_gone(&topic, &["1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_a_reply_keeps_what_it_took() {
    for then in BOTH {
        let (line, topic) = (Line::start().await, topic());
        for id in ["1", "2", "3"] {
            line.arm(&topic, id).await;
        }
        line.lose(&scripts::CLAIM, then);
        let (running, mut reported) = line.running(&topic);
        assert_eq!(next_ids(&mut reported, 3).await, ["1 1", "2 1", "3 1"]);
        let stats = stop(running).await;
        assert_eq!((line.proxy.lost(), stats.handled, stats.redelivered, stats.gone), (1, 3, 0, 0));
        assert_eq!(reported.try_next(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_before_a_claim_is_repeated_does_not_run() {
    let (line, topic) = (Line::start().await, topic());
    for id in ["1", "2"] {
        line.arm(&topic, id).await;
    }
    line.lose(&scripts::CLAIM, Then::Stall);
    let (running, mut reported) = line.running(&topic);
    line.proxy.until_lost(1).await;
    assert_eq!(line.direct.cancel(&topic, ["1"]).await.expect("an answer"), Cancelled::InFlight);
    assert_eq!(reported.next().await, "2 1");
    assert_eq!(stop(running).await.handled, 1);
    assert_eq!(reported.try_next(), None);
}
