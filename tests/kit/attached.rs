//! Keys that another program writes, in virtual time.

use std::time::Duration;

use keylapse::attach::Treatment;
use keylapse::{Attached, Done, Expired, Expiry, Failure, Lapse, Topic};
use keylapse_testing::{Notifications, RedisReply, RunningListener, TestBed};
use tokio::sync::mpsc;

use crate::kit::support::ms;
use crate::server::capture::Capture;

const MINUTES: Duration = Duration::from_secs(900);

/// What a handler was told of an order: its id, its value, and how its end is known.
type Told = (String, Option<u64>, Expiry);

fn orders() -> Attached<u64> {
    Attached::new(Topic::new("order:unpaid:{id}").expect("the pattern is fine")).keep_values(1024)
}

/// A shop that attaches to the orders.
async fn open_shop(bed: &TestBed) -> (RunningListener, mpsc::UnboundedReceiver<Told>) {
    open_shop_of(bed, orders()).await
}

async fn open_shop_of(
    bed: &TestBed,
    orders: Attached<u64>,
) -> (RunningListener, mpsc::UnboundedReceiver<Told>) {
    let (tell, told) = mpsc::unbounded_channel();
    let close = move |lapse: Lapse<Expired<u64>>| {
        let id = lapse.capture("id").unwrap_or_default().to_owned();
        let expiry = lapse.payload().expiry();
        let sent = tell.send((id, lapse.into_payload().into_value(), expiry));
        std::future::ready(sent.map(|()| Done).map_err(Failure::from))
    };
    let listening = bed.listen(|listener| listener.attach(orders, close)).await.expect("it can listen");
    bed.advance(ms(100)).await; // the first canary is heard
    (listening, told)
}

fn order(bed: &TestBed, id: &str, cents: &str, seconds: &str) {
    bed.command(["SET", &format!("order:unpaid:{id}"), cents, "EX", seconds]);
}

fn heard(id: &str, cents: u64) -> Option<Told> {
    Some((id.to_owned(), Some(cents), Expiry::Announced))
}

#[tokio::test(start_paused = true)]
async fn fifteen_minutes_pass_at_once_and_the_handler_has_the_value_of_the_expired_key() {
    let bed = TestBed::new();
    let (_listening, mut told) = open_shop(&bed).await;
    order(&bed, "42", "1999", "900");
    bed.advance(MINUTES - ms(1)).await;
    assert!(told.try_recv().is_err(), "not early");
    bed.advance(ms(20)).await;
    assert_eq!(told.try_recv().ok(), heard("42", 1999));
    bed.advance(MINUTES).await;
    assert!(told.try_recv().is_err(), "once");
    assert_eq!(bed.runs(orders().topic()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_paid_extended_or_kept_for_good_does_not_fire() {
    let bed = TestBed::new();
    let (_listening, mut told) = open_shop(&bed).await;
    for id in ["paid", "extended", "kept", "lapsed"] {
        order(&bed, id, "1", "900");
    }
    bed.advance(MINUTES / 2).await;
    bed.command(["DEL", "order:unpaid:paid"]);
    bed.command(["EXPIRE", "order:unpaid:extended", "1800"]);
    bed.command(["PERSIST", "order:unpaid:kept"]);
    bed.advance(MINUTES).await;
    assert_eq!(told.try_recv().ok(), heard("lapsed", 1));
    assert!(told.try_recv().is_err());
    bed.advance(MINUTES * 2).await;
    assert_eq!(told.try_recv().ok(), heard("extended", 1));
    assert!(told.try_recv().is_err());
}

/// As on a slow line: the order stays, so that nothing is taken for deleted.
#[tokio::test(start_paused = true)]
async fn what_is_announced_late_or_out_of_order_fires_later_with_its_value() {
    let faults: [fn(&Notifications); 2] = [|all| _ = all.delay(ms(2000)), |all| _ = all.reorder(ms(1000))];
    for fault in faults {
        let bed = TestBed::new();
        let (_listening, mut told) = open_shop(&bed).await;
        fault(bed.notifications());
        order(&bed, "42", "1999", "60");
        bed.advance(Duration::from_millis(60_500)).await;
        assert!(told.try_recv().is_err(), "nobody has heard of it yet");
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(told.try_recv().ok(), heard("42", 1999));
        bed.advance(MINUTES).await;
        assert!(told.try_recv().is_err(), "once");
    }
}

#[tokio::test(start_paused = true)]
async fn what_expires_while_the_connection_is_broken_is_recovered() {
    let bed = TestBed::new();
    let (_listening, mut told) = open_shop(&bed).await;
    order(&bed, "42", "1999", "60");
    bed.advance(Duration::from_secs(30)).await;
    bed.notifications().disconnect();
    bed.advance(Duration::from_secs(60)).await;
    bed.notifications().heal();
    bed.advance(Duration::from_secs(10)).await;
    let (id, value, expiry) = told.try_recv().expect("it is found by looking");
    assert_eq!((&*id, value, expiry), ("42", Some(1999), Expiry::Recovered));
    assert!(told.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn two_listeners_fire_an_expiry_once_and_one_that_crashes_leaves_it_to_the_other() {
    let bed = TestBed::new();
    let ((first, mut to_first), (_second, mut to_second)) = (open_shop(&bed).await, open_shop(&bed).await);
    for id in 0..20 {
        order(&bed, &id.to_string(), "1", "60");
    }
    bed.advance(Duration::from_secs(61)).await;
    assert_eq!(to_first.len() + to_second.len(), 20);
    order(&bed, "later", "2", "60");
    bed.advance(Duration::from_secs(1)).await;
    first.crash().await;
    while to_second.try_recv().is_ok() {}
    bed.advance(Duration::from_secs(61)).await;
    assert_eq!(to_second.try_recv().ok(), heard("later", 2));
    while to_first.try_recv().is_ok_and(|(id, ..)| id != "later") {}
}

#[tokio::test(start_paused = true)]
async fn a_forged_event_of_a_key_that_lives_does_not_end_its_watch() {
    let bed = TestBed::new();
    let (_listening, mut told) = open_shop(&bed).await;
    bed.notifications().forge("order:unpaid:never-was");
    bed.advance(Duration::from_secs(1)).await;
    assert_eq!(
        told.try_recv().ok(),
        Some(("never-was".to_owned(), None, Expiry::Announced)),
        "as documented"
    );
}

/// A listener says its policy again after so long at the latest.
const SAID_AGAIN: Duration = Duration::from_secs(61);

fn revision_in_redis(bed: &TestBed) -> RedisReply {
    bed.command(["HGET", &format!("keylapse:{{{}/0}}:meta", orders().topic().name()), "revision"])
}

#[tokio::test(start_paused = true)]
async fn who_runs_keeps_its_policy_while_a_newer_one_stands_and_says_so_each_minute() {
    let (bed, (log, _guard)) = (TestBed::new(), Capture::start());
    let (_listening, mut told) = open_shop(&bed).await;
    let newer = orders().untracked(Treatment::Ignore).revision(2);
    let (newer, _) = open_shop_of(&bed, newer).await;
    newer.stop().await.expect("it ends");
    for minutes in 0..3 {
        assert_eq!(log.loud("keeps its own until it is started again"), minutes);
        bed.notifications().forge(format!("order:unpaid:{minutes}"));
        bed.advance(SAID_AGAIN).await;
        assert!(told.try_recv().is_ok(), "it fires as before");
    }
    assert_eq!(revision_in_redis(&bed), RedisReply::Bulk("2".into()));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_gone_with_the_database_stands_again_for_those_that_start() {
    let bed = TestBed::new();
    let _newer = open_shop_of(&bed, orders().revision(7).cap(9)).await;
    bed.command(["FLUSHALL"]);
    assert_eq!(revision_in_redis(&bed), RedisReply::Nil);
    bed.advance(SAID_AGAIN).await;
    assert_eq!(revision_in_redis(&bed), RedisReply::Bulk("7".into()));
}
