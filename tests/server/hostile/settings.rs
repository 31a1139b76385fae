//! Delays and settings that cannot work are refused where they are first used;
//! extreme ones that can do what they say.

use keylapse::inside::ClientInside as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::limits::MAX_DELAY;
use keylapse::{Backoff, Client, Done, ErrorKind, Failure, Listener, Schedule, Topic, When};
use keylapse_support::Server;

use super::scene::{Scene, Tally, orders};
use crate::server::support::{PATIENCE, Running, listener, server_and_schedule, until_dead};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Nobody listens there: what is refused is refused before anything is sent.
const NOBODY: &str = "redis://127.0.0.1:1/";

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_of_zero_and_times_that_have_passed_mean_now() {
    let scene = Scene::new().await;
    let now = SystemTime::now();
    let passed = [
        When::In(Duration::ZERO),
        When::At(now),
        When::At(now - Duration::from_secs(3600)),
        When::At(UNIX_EPOCH),
        When::At(UNIX_EPOCH - Duration::from_secs(1 << 40)),
    ];
    for (n, when) in passed.into_iter().enumerate() {
        let armed = scene.schedule.arm(&scene.topic, [n.to_string()], when, &String::new()).await.unwrap();
        let deadline = armed.receipt().unwrap().deadline;
        assert!(deadline >= now - Duration::from_millis(1), "{n}: no deadline lies before its arming");
    }
    scene.tally.until(passed.len()).await;
    scene.tally.assert_each_once(passed.len());
    scene.stop().await;
}

#[tokio::test]
async fn enormous_delays_and_times_are_refused_with_the_limit() {
    let client = Client::new(NOBODY).unwrap();
    let schedule = Schedule::new(client.clone());
    let far = UNIX_EPOCH + Duration::from_secs(300 * 365 * 86_400);
    let absurd = [
        When::In(Duration::MAX),
        When::In(10 * YEAR + Duration::from_nanos(1)),
        // Seconds since 1970, in place of a delay.
        When::In(Duration::from_secs(1_800_000_000)),
        When::At(far),
        // Seconds given for milliseconds: the year 58,000.
        When::At(UNIX_EPOCH + Duration::from_secs(1_763_000_000_000)),
    ];
    for when in absurd {
        let error = schedule.arm(&orders(), ["1"], when, &String::new()).await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Invalid, Some(&b"app:order:1"[..])));
        let text = error.to_string();
        assert!(text.contains("over the limit of 10 years") || text.contains("2248"), "{text}");
        let moved = schedule.reschedule(&orders(), ["1"], when).await.unwrap_err();
        assert_eq!(moved.kind(), ErrorKind::Invalid);
    }
    let patient = orders().max_delay(MAX_DELAY);
    let beyond = schedule.arm(&patient, ["1"], MAX_DELAY + Duration::from_nanos(1), &String::new()).await;
    assert!(beyond.unwrap_err().to_string().contains("over the limit of 100 years"));
    assert_eq!(client.store().clone().requests(), 0, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_of_a_hundred_years_is_kept_and_holds_nobody_up() {
    let scene = Scene::new().await;
    let patient = scene.topic.clone().max_delay(MAX_DELAY);
    let armed = scene.schedule.arm(&patient, ["2125"], MAX_DELAY, &String::new()).await;
    assert!(armed.expect("it is armed").is_armed());
    scene.proves_well("now").await;
    let timer = scene.schedule.look_up(&scene.topic, ["2125"]).await.unwrap().unwrap();
    let keylapse::timers::TimerPhase::Waiting(at) = timer.phase else { panic!("{timer:?}") };
    assert!(at > SystemTime::now() + MAX_DELAY - Duration::from_secs(60));
    scene.stop().await;
}

/// Each is refused twice: by a schedule that uses the topic, and by a listener
/// that is built with it.
#[tokio::test]
async fn settings_that_can_never_work_are_refused_naming_the_topic() {
    let schedule = Schedule::new(Client::new(NOBODY).unwrap());
    let refused: [(&str, Topic<String>); 15] = [
        ("max_delay", orders().max_delay(MAX_DELAY + Duration::from_nanos(1))),
        ("partitions", orders().partitions(0)),
        ("partitions", orders().partitions(1025)),
        ("max_attempts", orders().max_attempts(0)),
        ("concurrency", orders().concurrency(0)),
        ("timeout", orders().timeout(Duration::ZERO)),
        ("lease", orders().lease(Duration::ZERO)),
        ("lease", orders().lease(Duration::MAX)),
        ("lookahead", orders().lookahead(Duration::from_secs(2))),
        ("lookahead", orders().lookahead(Duration::MAX)),
        ("lookahead", orders().lease(Duration::from_millis(300)).lookahead(Duration::from_millis(100))),
        ("payload_limit", orders().payload_limit(usize::MAX)),
        ("payload_limit", orders().payload_limit((8 << 20) + 1)),
        ("dead_letters", orders().dead_letters(0, Duration::from_secs(60))),
        ("dead_letters", orders().dead_letters(10, Duration::ZERO)),
    ];
    for (setting, topic) in refused {
        let used = schedule.cancel(&topic, ["1"]).await.unwrap_err();
        let built = Listener::builder(NOBODY).on(topic, Tally::default().handler()).build().unwrap_err();
        for error in [used, built] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.starts_with("topic orders: ") && text.contains(setting), "{text}");
        }
    }
}

#[tokio::test]
async fn a_listener_with_settings_that_can_never_work_is_not_built() {
    let builder = || Listener::builder(NOBODY);
    let client = || Client::new(NOBODY).unwrap();
    for (word, refused) in [
        ("at least one topic", builder().build().map(|_| ())),
        (
            "concurrency",
            builder().on(orders(), Tally::default().handler()).concurrency(0).build().map(|_| ()),
        ),
        (
            "topic orders is attached",
            builder()
                .attach(orders(), |_| async { Ok::<_, Failure>(Done) })
                .save_requests()
                .build()
                .map(|_| ()),
        ),
        ("answer_within", client().answer_within(Duration::ZERO).map(|_| ())),
        ("namespace", client().namespace("").map(|_| ())),
        ("namespace", client().namespace("a:b").map(|_| ())),
        ("namespace", client().namespace("{tag}").map(|_| ())),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(word), "{error}");
    }
}

/// What people write for “for ever” and “as many as you like”.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_settings_work() {
    let topic = orders()
        .retry(Backoff::exponential(Duration::MAX, Duration::MAX))
        .max_attempts(u32::MAX)
        .max_age(Duration::MAX)
        .max_snoozes(u16::MAX)
        .timeout(Duration::MAX)
        .lease(Duration::from_secs(86_400))
        .lookahead(Duration::from_secs(1))
        .concurrency(usize::MAX)
        .dead_letters(u64::MAX, Duration::MAX);
    let server = Server::start().await;
    let client = Client::new(&server.app_url()).unwrap().retry_for(Duration::MAX);
    let client = client.answer_within(Duration::MAX).unwrap();
    let schedule = Schedule::new(client.clone());
    let scene =
        Scene::at(server, topic, client, |builder| builder.concurrency(usize::MAX).grace(Duration::MAX))
            .await;
    scene.proves_well("1").await;
    assert_eq!(schedule.dead_letters(&scene.topic).page(usize::MAX).await.unwrap().len(), 0);
    let ask = keylapse::timers::Durably::replicas(u32::MAX).within(Duration::ZERO);
    let armed = schedule.arm(&scene.topic, ["2"], Duration::ZERO, &String::new()).durably(ask).await.unwrap();
    assert_eq!(armed.receipt().unwrap().reached.unwrap().replicas, 0);
    scene.tally.until(2).await;
    scene.stop().await;
}

/// Retries and snoozes of a handler that knows no measure.
#[tokio::test(flavor = "multi_thread")]
async fn endless_delays_of_a_handler_are_capped_and_those_of_zero_do_not_loop_for_ever() {
    use keylapse::dead_letters::DeadReason;
    use keylapse::timers::TimerPhase;
    use keylapse::{Failure, Lapse, Outcome};
    let (server, schedule) = server_and_schedule().await;
    let topic = orders().max_attempts(5).max_snoozes(5);
    let handler = |lapse: Lapse<String>| {
        std::future::ready(match lapse.payload().as_str() {
            "snooze for ever" => Ok(Outcome::Snooze(Duration::MAX)),
            "again in aeons" => Ok(Outcome::Again(Duration::MAX)),
            "retry in aeons" => Err(Failure::retry_after(Duration::MAX, "no")),
            "snooze" => Ok(Outcome::Snooze(Duration::ZERO)),
            _ => Err(Failure::retry_after(Duration::ZERO, "no")),
        })
    };
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let kinds = ["snooze for ever", "again in aeons", "retry in aeons", "snooze", "retry"];
    for kind in kinds {
        let _ = schedule.arm(&topic, [kind], Duration::ZERO, &kind.to_owned()).await.unwrap();
    }
    for kind in &kinds[..3] {
        let far = async || {
            let timer = schedule.look_up(&topic, [kind]).await.unwrap().unwrap();
            matches!(timer.phase, TimerPhase::Waiting(at) if at > SystemTime::now() + MAX_DELAY / 2)
        };
        keylapse_support::eventually(PATIENCE, "it waits for a century", far).await;
    }
    until_dead(&schedule, &topic, 2).await;
    let letters = schedule.dead_letters(&topic).page(10).await.unwrap();
    let mut reasons: Vec<_> = letters.iter().map(|letter| letter.reason).collect();
    reasons.sort_by_key(|reason| reason.as_str());
    assert_eq!(reasons, [DeadReason::Exhausted, DeadReason::Snoozed]);
    running.stop().await.unwrap();
}

#[test]
fn two_patterns_that_can_claim_one_key_are_refused_naming_both() {
    let topic = |name: &str, pattern: &str| Topic::<String>::named(name, pattern).unwrap();
    let build = |a, b| {
        let builder = Listener::builder(NOBODY).on(a, Tally::default().handler());
        builder.on(b, Tally::default().handler()).build()
    };
    for (one, other) in [
        ("app:{id}", "app:{name}"),
        ("app:{id:[0-9]+}", "app:{hex:[0-9a-f]+}"),
        ("app:{rest..}", "app:{all..}"),
        ("app:fixed", "app:fixed"),
    ] {
        let error = build(topic("a", one), topic("b", other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let text = error.to_string();
        assert!(text.contains(one) && text.contains(other), "{text}");
    }
    assert!(build(topic("a", "app:{id}"), topic("b", "app:{id:[0-9]+}")).is_ok(), "the more specific wins");
}

#[test]
fn a_topic_name_that_is_used_twice_is_refused_naming_both_patterns() {
    let topic = |pattern: &str| Topic::<String>::named("orders", pattern).unwrap();
    let builder = Listener::builder(NOBODY).on(topic("app:order:{id}"), Tally::default().handler());
    let error = builder.on(topic("shop:order:{id}"), Tally::default().handler()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let text = error.to_string();
    assert!(
        text.contains("app:order:{id}") && text.contains("shop:order:{id}") && text.contains("orders"),
        "{text}"
    );
}
