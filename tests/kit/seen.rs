//! What a listener shows: statistics, metrics, health.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use keylapse::dead_letters::Replayed;
use keylapse::health::{EventMode, Health};
use keylapse::{Done, ErrorKind, Failure, Lapse, Listener, NewArm, Outcome, Rescheduled, Topic};
use keylapse_testing::TestBed;
use tracing::{Span, span};

use crate::kit::support::{arm, listen, ms, pick, play, reminders, secs, succeed};

#[tokio::test(start_paused = true)]
async fn statistics_iterate_as_names_and_counts() {
    let bed = TestBed::new();
    let stats = play(&bed).await;
    let (total, topic) = (stats.total(), stats.topic("reminder").unwrap());
    assert_eq!(total, topic);
    assert_eq!(total.iter().find(|(name, _)| *name == "handled"), Some(("handled", 2)));
    let counters = [total.iter().collect::<Vec<_>>(), stats.listener().iter().collect()].concat();
    let named: HashSet<_> = counters.iter().map(|(name, _)| name).collect();
    assert_eq!(named.len(), counters.len());
    assert_eq!(stats.attached("reminder"), None);
    let handler_times = stats.handler_times("reminder").unwrap();
    assert_eq!((handler_times.count(), handler_times.quantile(0.5)), (5, Some(ms(50))));
    let lateness = stats.lateness("reminder").unwrap();
    assert_eq!(lateness.count(), 5);
    assert!(lateness.quantile(1.0) >= Some(secs(1)));
    assert_eq!(stats.lateness("other"), None);
}

#[tokio::test(start_paused = true)]
async fn health_says_whether_it_listens_hears_and_is_behind() {
    let bed = TestBed::new();
    let topic = reminders().concurrency(2);
    let stuck = async |lapse: Lapse<String>| {
        lapse.lease_lost().await;
        Err::<Done, _>(Failure::retry("told to stop"))
    };
    let idle = Listener::builder(bed.client()).on(topic.clone(), succeed).build().unwrap().health();
    assert!(!idle.is_ready() && !idle.connected() && !idle.heartbeat_received(), "{idle:?}");
    let listening = bed.listen(|listener| listener.on(topic, stuck).grace(secs(1))).await.unwrap();
    let health: Health = listening.stats().health();
    bed.advance(secs(2)).await;
    assert!(health.is_ready() && health.connected() && health.heartbeat_received(), "{health:?}");
    assert_eq!((health.oldest_overdue(), health.capacity().running), (secs(0), 0));
    for id in ["a", "b", "c"] {
        arm(&bed, id, secs(1)).await;
    }
    bed.advance(secs(12)).await;
    let seen = &health.topics()[0];
    assert_eq!((&seen.name[..], seen.capacity.running, seen.capacity.limit), ("reminder", 2, 2));
    assert!(health.oldest_overdue() >= secs(5) && health.oldest_overdue() <= secs(11), "{health:?}");
    assert_eq!((seen.oldest_overdue, seen.parked.len()), (health.oldest_overdue(), 0));
    assert_eq!((health.capacity().running, health.capacity().limit), (2, 1000));
    bed.command(["CONFIG", "SET", "notify-keyspace-events", ""]);
    bed.advance(secs(3)).await;
    assert!(
        !health.heartbeat_received() && health.is_ready(),
        "events are off, and all else works: {health:?}"
    );
    listening.stop().await.unwrap();
    assert!(!health.is_ready());
    let given_up = listen(&bed, succeed).await;
    let health = given_up.stats().health();
    assert!(health.is_ready());
    given_up.crash().await;
    assert!(!health.is_ready(), "nobody runs it any more");
}

/// With managed topics alone nothing but canaries tells of events.
#[tokio::test(start_paused = true)]
async fn the_mode_is_known_with_the_first_canary_and_when_one_is_missed() {
    let bed = TestBed::new();
    let listening = listen(&bed, succeed).await;
    let (stats, health) = (listening.stats(), listening.stats().health());
    let modes = || (stats.mode(), health.mode());
    bed.advance(ms(50)).await;
    assert_eq!((health.is_ready(), modes()), (true, (EventMode::Expired, EventMode::Expired)));
    bed.command(["CONFIG", "SET", "notify-keyspace-events", ""]);
    bed.advance(secs(3)).await;
    assert_eq!(modes(), (EventMode::ScanOnly, EventMode::ScanOnly));
    bed.command(["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
    bed.advance(secs(3)).await;
    assert_eq!(modes(), (EventMode::Expired, EventMode::Expired));
}

#[tokio::test(start_paused = true)]
async fn health_tells_the_last_failure_of_each_topic() {
    let bed = TestBed::new();
    let other = Topic::<String>::new("other:{id}").unwrap();
    let listening = bed.listen(|listener| listener.on(reminders(), pick).on(other, succeed)).await.unwrap();
    arm(&bed, "bad", secs(1)).await;
    bed.advance(secs(2)).await;
    let failures: Vec<_> = listening
        .stats()
        .health()
        .topics()
        .into_iter()
        .map(|topic| topic.last_failure.map(|(_, said)| said))
        .collect();
    assert_eq!(failures, [Some("no".to_owned()), None]);
}

/// Spans and trace contexts.
type Seen = Arc<Mutex<Vec<(Option<span::Id>, String)>>>;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Through retries, a new deadline, recurrence, death and replay.
#[tokio::test(start_paused = true)]
async fn a_trace_goes_on_in_each_attempts_span() {
    let _guard = keylapse_support::subscribe(tracing_subscriber::registry());
    let (bed, seen, continued) = (TestBed::new(), Seen::default(), Seen::default());
    let (handled, extracted) = (seen.clone(), continued.clone());
    let handler = move |lapse: Lapse<String>| {
        handled.lock().unwrap().push((Span::current().id(), lapse.traceparent().unwrap_or_default()));
        let end = match handled.lock().unwrap().len() {
            1 => Err(Failure::retry("once more")),
            2 => Ok(Outcome::Again(secs(5))),
            3 => Err(Failure::dead("enough")),
            _ => Ok(Outcome::Done),
        };
        std::future::ready(end)
    };
    let extract =
        move |span: &Span, trace: &str| extracted.lock().unwrap().push((span.id(), trace.to_owned()));
    bed.listen(|listener| listener.on(reminders(), handler).trace(extract)).await.unwrap();
    let schedule = bed.schedule().trace(|| Some(TRACE.to_owned()));
    assert!(schedule.arm(&reminders(), "a", secs(60), &"hello".to_owned()).await.unwrap().is_armed());
    let moved = schedule.reschedule(&reminders(), "a", secs(1)).await.unwrap();
    assert!(matches!(moved, Rescheduled::Rescheduled(_)));
    bed.until_finished().await;
    let letters = schedule.dead_letters(&reminders()).page(10).await.unwrap();
    assert_eq!(letters[0].payload.as_ref().unwrap(), "hello");
    assert_eq!(schedule.replay(&letters[0]).await.unwrap(), Replayed::Replayed);
    bed.until_finished().await;
    let (seen, continued) = (seen.lock().unwrap().clone(), continued.lock().unwrap().clone());
    assert_eq!((seen.len(), &seen), (4, &continued), "the handler's own span each time");
    assert!(seen.iter().all(|(span, trace)| span.is_some() && trace == TRACE), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_trace_is_carried_only_where_that_is_asked_for() {
    let (bed, seen, continued) = (TestBed::new(), Seen::default(), Seen::default());
    let (handled, extracted) = (seen.clone(), continued.clone());
    let handler = move |lapse: Lapse<String>| {
        handled.lock().unwrap().push((None, lapse.traceparent().unwrap_or_default()));
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let extract = move |_: &Span, trace: &str| extracted.lock().unwrap().push((None, trace.to_owned()));
    bed.listen(|listener| listener.on(reminders(), handler).trace(extract)).await.unwrap();
    let (topic, hello) = (reminders(), "hello".to_owned());
    arm(&bed, "a", secs(1)).await;
    let nothing = bed.schedule().trace(|| None);
    let _ = nothing.arm(&topic, "b", secs(2), &hello).await.unwrap();
    let nonsense = bed.schedule().trace(|| Some("nonsense".to_owned()));
    let _ = nonsense.arm(&topic, "c", secs(3), &hello).await.unwrap();
    let _ = bed.schedule().arm(&topic, "d", secs(4), &hello).traceparent(TRACE).await.unwrap();
    let many = bed.schedule().trace(|| Some(TRACE.to_owned()));
    let armed = many.arm_many(&topic, [NewArm::new("e", secs(5), hello.clone())]).await.unwrap();
    assert!(armed[0].is_ok());
    let refused = bed.schedule().arm(&topic, "f", secs(1), &hello).traceparent("nonsense").await.unwrap_err();
    assert_eq!((refused.kind(), refused.key()), (ErrorKind::Invalid, Some(&b"reminder:f"[..])));
    bed.until_finished().await;
    let traces =
        |seen: &Seen| seen.lock().unwrap().iter().map(|(_, trace)| trace.clone()).collect::<Vec<_>>();
    assert_eq!(traces(&seen), ["", "", "", TRACE, TRACE]);
    assert_eq!(traces(&continued), [TRACE, TRACE]);
}
