//! One owner for each attempt, however its life ends.

use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::listening::{
    arm, arm_all, fail, listen, ms, one_timer, secs, stats, stuck, succeed, take_time, topic,
};
use keylapse::Lapse;
use keylapse::Listener;
use keylapse::{Done, Failure};
use keylapse_testing::{RunEnd, TestBed};

/// Whose reader has gone away: it panics at this.
struct Broken(&'static str);

impl Broken {
    fn at(&self, what: &'static str) {
        assert_ne!(self.0, what, "nobody reads the log");
    }
}

impl Subscriber for Broken {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.at("span");
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.at("event");
    }

    fn enter(&self, _: &Id) {
        self.at("enter");
    }

    fn exit(&self, _: &Id) {
        self.at("exit");
    }

    fn try_close(&self, _: Id) -> bool {
        self.at("close");
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_nobody_reads_costs_no_lease_and_holds_no_timer() {
    for what in ["event", "span", "enter", "exit", "close"] {
        let _broken = keylapse_support::subscribe(Broken(what));
        let (bed, listening) = one_timer(topic(), fail, 0).await;
        bed.until_finished().await;
        assert!(bed.elapsed() < secs(22), "{what}: three attempts, ten seconds apart");
        let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
        assert_eq!(letters[0].history.len(), 3, "{what}");
        assert_eq!((stats(&listening).lost_leases, stats(&listening).redelivered), (0, 0), "{what}");
        arm(&bed, "2", secs(1), 0).await;
        bed.until_finished().await;
        listening.stop().await.unwrap();
    }
}

/// Panics whenever it is dropped, with another of its kind.
struct Hostile;

impl Drop for Hostile {
    fn drop(&mut self) {
        panic_any(Hostile);
    }
}

#[tokio::test(start_paused = true)]
async fn what_panics_when_it_is_dropped_fails_and_is_retried_like_any_other() {
    let bed = TestBed::counting().expect_panics();
    let handler = async |lapse: Lapse<u32>| -> Result<Done, Failure> {
        if lapse.attempt() == 1 {
            panic_any(Hostile);
        }
        let _hostile = Hostile;
        std::future::pending().await
    };
    let listening = listen(&bed, topic().timeout(secs(5)).max_attempts(2), handler).await;
    arm(&bed, "1", secs(1), 0).await;
    bed.until_finished().await;
    let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
    let kinds: Vec<_> = letters[0].history.iter().map(|failed| failed.kind.as_str()).collect();
    assert_eq!((kinds, bed.elapsed()), (vec!["panic", "timeout"], secs(16)));
    assert_eq!((stats(&listening).lost_leases, stats(&listening).redelivered), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_listens_no_more_holds_nothing_and_renews_nothing() {
    let bed = TestBed::counting();
    let lapses = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = lapses.clone();
    let handler = move |lapse: Lapse<u32>| {
        let lapse = Arc::new(lapse);
        seen.lock().unwrap().push(lapse.clone());
        async move {
            lapse.lease_lost().await;
            std::future::pending::<Result<Done, Failure>>().await
        }
    };
    let listener = Listener::builder(bed.client()).on(topic(), handler).build().unwrap();
    arm_all(&bed, &["1", "2", "3"], 0).await;
    let dropped = tokio::time::timeout(secs(20), listener.run_until(std::future::pending::<()>())).await;
    assert!(dropped.is_err());
    let lapses = std::mem::take(&mut *lapses.lock().unwrap());
    assert!(lapses.len() == 3 && lapses.iter().all(|lapse| !lapse.has_lease()), "at once");
    bed.advance(ms(1)).await;
    assert!(lapses.iter().all(|lapse| Arc::strong_count(lapse) == 1), "the handlers are gone");
    let renewed = bed.calls().made("renew").len();
    bed.advance(secs(100)).await;
    assert_eq!(bed.calls().made("renew").len(), renewed);
    let second = listen(&bed, topic(), succeed).await;
    bed.until_finished().await;
    assert_eq!((stats(&second).handled, stats(&second).redelivered), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_back_at_shut_down_was_stopped_before() {
    let bed = TestBed::counting();
    let ended = Arc::new(AtomicUsize::new(0));
    let counting = ended.clone();
    let handler = move |_: Lapse<u32>| {
        let counting = counting.clone();
        async move {
            tokio::time::sleep(ms(50)).await;
            counting.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Failure>(Done)
        }
    };
    let first = bed.listen(|listener| listener.on(topic(), handler.clone()).grace(ms(20))).await.unwrap();
    let ids: Vec<_> = (0..100).map(|id| id.to_string()).collect();
    arm_all(&bed, &ids.iter().map(String::as_str).collect::<Vec<_>>(), 0).await;
    bed.advance(ms(1010)).await;
    let counted = first.stats().clone();
    first.stop().await.unwrap();
    assert_eq!((counted.total().claimed, counted.total().released), (100, 100));
    listen(&bed, topic(), handler).await;
    bed.until_finished().await;
    assert_eq!(ended.load(Ordering::Relaxed), 100, "each was finished once");
    assert!(bed.all_runs()[..100].iter().all(|run| run.end == Some(RunEnd::Stopped)));
}

/// The answer to a renewal does not come; the clock goes on all the same.
#[tokio::test(start_paused = true)]
async fn a_handler_is_told_in_time_though_its_renewal_has_no_answer() {
    let topic = topic().lease(secs(2)).timeout(secs(1000));
    let (bed, listening) = one_timer(topic, stuck, 0).await;
    bed.until(|runs| !runs.is_empty()).await;
    bed.calls().fail("renew", keylapse_testserver::CallFault::Unanswered, 1000);
    // Renewed last a third of a second ago at most.
    bed.advance(ms(1801)).await;
    assert_eq!(stats(&listening).lost_leases, 1);
    bed.advance(secs(1)).await;
    assert_eq!(bed.all_runs()[0].end, Some(RunEnd::Stopped));
}

#[tokio::test]
async fn a_part_that_ends_unasked_ends_the_listener_and_says_so() {
    let (server, opened) = (keylapse_testserver::TestServer::new(), AtomicUsize::new(0));
    let client = keylapse::Client::new("redis://in.this.process").unwrap().connect_with(move || {
        assert!(opened.fetch_add(1, Ordering::Relaxed) < 1, "as the test says");
        std::future::ready(Ok(server.connect()))
    });
    let listener = Listener::builder(client).on(topic(), take_time).build().unwrap();
    let ended = tokio::time::timeout(secs(20), listener.run_until(std::future::pending::<()>())).await;
    let error = ended.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), keylapse::ErrorKind::Internal);
    assert!(error.to_string().contains("as the test says"), "{error}");
}

/// A step forward ends leases on the server before their time, which is done here by hand. The first holder learns of
/// it by its next renewal: that is the bound which the documentation states.
#[tokio::test(start_paused = true)]
async fn what_a_step_of_the_servers_clock_makes_of_two_holders_ends_with_the_next_renewal() {
    let mut longest = ms(0);
    for after in 0..15 {
        let bed = TestBed::counting();
        let lapses = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = lapses.clone();
        let handler = move |lapse: Lapse<u32>| {
            seen.lock().unwrap().push(Arc::new(lapse));
            std::future::pending::<Result<Done, Failure>>()
        };
        let topic = topic().timeout(secs(1000));
        listen(&bed, topic.clone(), handler.clone()).await;
        arm(&bed, "1", secs(1), 0).await;
        bed.advance(secs(30 + after)).await;
        bed.command(["ZADD", "keylapse:{a/0}:due", "1", "a:1"]);
        listen(&bed, topic, handler).await;
        bed.until(|runs| runs.len() == 2).await;
        let holders = lapses.lock().unwrap().clone();
        assert_eq!(holders[0].arming(), holders[1].arming());
        let began = bed.elapsed();
        while holders.iter().all(|lapse| lapse.has_lease()) {
            bed.advance(ms(10)).await;
        }
        assert!(holders[1].has_lease(), "the later one holds it");
        longest = longest.max(bed.elapsed() - began);
    }
    assert!((ms(8000)..=ms(10_000)).contains(&longest), "{longest:?}, of a lease of 30 s");
}
