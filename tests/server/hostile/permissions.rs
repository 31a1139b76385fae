//! Passwords that are wrong and rights that are missing: told apart from servers
//! that are away, named, and repaired without a restart.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use futures::{StreamExt, stream};

use keylapse::stats::Stats;
use keylapse::timers::MarkerKey;
use keylapse::{ArmResult, Backoff, Client, Error, ErrorKind, Listener, Schedule, Topic};
use keylapse_support::{APP_PASSWORD, APP_USER, Server, eventually};
use redis::Value;

use super::scene::{Scene, Tally, orders};
use crate::server::support::{PATIENCE, Running, refusal, server_and_schedule, show_log};

const SOON: Duration = Duration::from_millis(300);
const WRONG: &str = "hunter2";

/// What `run_until` of a listener there returns with.
async fn refusal_of_a_listener(url: &str) -> Error {
    refusal(Listener::builder(url).on(orders(), Tally::default().handler())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_user_or_password_is_said_at_once_and_repeated_nowhere() {
    show_log();
    let server = Server::start().await;
    let without_password = Server::start().await;
    server.cmd(&["ACL", "SETUSER", "default", "off"]).await;
    for url in [
        server.url_for(APP_USER, WRONG),
        server.url_for("nobody", WRONG),
        server.url_for("", WRONG),
        server.url(),
        without_password.url_for(APP_USER, WRONG),
    ] {
        let connected = Schedule::connect(&url).await.map(|_| ()).unwrap_err();
        for error in [connected, refusal_of_a_listener(&url).await] {
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
            assert!(error.needs_operator() && !error.is_transient());
            let text = format!("{error} {error:?}");
            assert!(text.contains("password") && !text.contains(WRONG), "{text}");
        }
    }
}

#[tokio::test]
async fn no_debug_output_shows_the_password_of_the_url() {
    let url = format!("redis://someone:{WRONG}@127.0.0.1:1/");
    let client = Client::new(&url).unwrap();
    let schedule = Schedule::new(client.clone());
    let builder = Listener::builder(&url).on(orders(), Tally::default().handler());
    let shown = format!("{client:?} {:?} {schedule:?} {builder:?}", client.store().clone());
    let shown = format!("{shown} {:?}", builder.build().unwrap());
    assert!(!shown.contains(WRONG) && !shown.contains("someone"), "{shown}");
    let topic = Topic::<String>::new("app:order:{id}").unwrap();
    let request = schedule.arm(&topic, ["1"], SOON, &WRONG.to_owned());
    assert!(!format!("{request:?}").contains(WRONG), "nor a payload");
}

/// Rotated while the listener runs: its connections are cut, it waits, and goes
/// on when the password is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_changed_under_a_listener_parks_it_until_it_is_changed_back() {
    let scene = Scene::new().await;
    scene.proves_well("before").await;
    scene.running.until_anchored().await;
    scene.server.cmd(&["ACL", "SETUSER", APP_USER, "resetpass", ">other"]).await;
    let default = Schedule::connect(&scene.server.url()).await.unwrap();
    let _ = default.arm(&scene.topic, ["due"], SOON, &String::new()).await.unwrap();
    // Only now: a connection that has logged in stays logged in.
    for kind in ["normal", "pubsub"] {
        scene.server.cmd(&["CLIENT", "KILL", "TYPE", kind, "USER", APP_USER]).await;
    }
    scene.until("the refusal to be noticed", |stats| stats.claim_errors > 0).await;
    scene.server.cmd(&["ACL", "SETUSER", APP_USER, "resetpass", &format!(">{APP_PASSWORD}")]).await;
    scene.tally.until(2).await;
    scene.tally.assert_each_once(2);
    scene.stop().await;
}

/// What the user of `redis.conf` may do: the words of its line, and its selectors.
fn rights() -> (Vec<&'static str>, Vec<&'static str>) {
    let conf = include_str!("../../../redis.conf");
    let line =
        conf.lines().find_map(|line| line.strip_prefix("user keylapse on >change-me ")).expect("a user");
    let (words, selectors) = line.split_at(line.find('(').expect("a selector"));
    (words.split_whitespace().collect(), selectors.split_inclusive(')').map(str::trim).collect())
}

/// For each right that running a timer takes: a user who lacks it loses nothing
/// by that, and once it is given back, everything runs, fails, is retried, and
/// ends, as often as it should.
#[tokio::test(flavor = "multi_thread")]
async fn each_missing_right_parks_a_listener_until_it_is_granted() {
    show_log();
    let server = Server::start().await;
    let (words, _) = rights();
    let granted =
        words.iter().filter_map(|word| word.strip_prefix('+')).filter(|right| !right.starts_with('@'));
    let checks: Vec<_> = granted.map(|right| a_missing_right_parks(&server, right)).collect();
    assert!(checks.len() > 30, "of {words:?}");
    // Not all at once: each listener connects several times, which takes its time over TLS.
    stream::iter(checks).buffer_unordered(16).collect::<Vec<_>>().await;
}

async fn a_missing_right_parks(server: &Server, right: &str) {
    let user = format!("without-{}", right.replace('|', "-"));
    let setuser = async |word: &str| server.cmd(&["ACL", "SETUSER", &user, word]).await;
    let (words, selectors) = rights();
    let all = ["ACL", "SETUSER", &user, "on", ">pass"].into_iter().chain(words).chain(selectors);
    server.cmd(&all.collect::<Vec<_>>()).await;
    let topic = Topic::<String>::named(&user, "app:order:{id}").unwrap();
    let topic = topic.retry(Backoff::fixed(Duration::from_millis(5)));
    let tally = Tally::default();
    let url = server.url_for(&user, "pass");
    let running = Running::start(Listener::builder(&url).on(topic.clone(), tally.handler_that_fails(1)));
    let schedule = Schedule::connect(&server.url()).await.unwrap();
    let arm = async |id: &str, delay| schedule.arm(&topic, [id], delay, &String::new()).await.unwrap();
    let _ = arm("before", Duration::ZERO).await;
    let handled = async |count| {
        let what = format!("{count} timers without {right}");
        running.until(&what, |stats| stats.total().handled == count).await;
    };
    handled(1).await;
    setuser(&format!("-{right}")).await;
    for n in 0..5 {
        let _ = arm(&n.to_string(), SOON).await;
    }
    let troubled = |stats: &Stats| {
        let stats = stats.total();
        stats.claim_errors + stats.settle_errors > 0 || stats.handled == 6
    };
    running.until("it to be missed, or to make no difference", troubled).await;
    setuser(&format!("+{right}")).await;
    handled(6).await;
    let _ = arm("after", Duration::ZERO).await;
    handled(7).await;
    let settled =
        async || server.cmd(&["HLEN", super::scene::names(&topic).key("timers")]).await == Value::Int(0);
    eventually(PATIENCE, &format!("everything to be settled without {right}"), settled).await;
    running.stop().await.unwrap();
    tally.assert_each(7, 2);
    assert_eq!(schedule.dead_letter_counts(&topic).await.unwrap(), (0, 0), "without {right}");
}

fn trigger_error(armed: &ArmResult) -> ErrorKind {
    let MarkerKey::Failed(error) = &armed.receipt().unwrap().marker else { panic!("{armed:?}") };
    error.kind()
}

/// Producers are told which right it is, in the server's words, and that it is a
/// right.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_without_a_right_is_told_so() {
    let (server, schedule) = server_and_schedule().await;
    let topic = orders();
    let _ = schedule.arm(&topic, ["1"], SOON, &String::new()).await.unwrap();
    for right in ["-evalsha", "-zadd", "-hset"] {
        server.cmd(&["ACL", "SETUSER", APP_USER, right]).await;
        let error = schedule.arm(&topic, ["2"], SOON, &String::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(error.needs_operator() && error.to_string().contains("redis.conf"), "{error}");
        server.cmd(&["ACL", "SETUSER", APP_USER, &right.replace('-', "+")]).await;
    }
    // A trigger key that may not be written is no failure of the arm.
    server.cmd(&["ACL", "SETUSER", APP_USER, "-set"]).await;
    let armed = schedule.arm(&topic, ["3"], SOON, &String::new()).await.unwrap();
    assert_eq!(trigger_error(&armed), ErrorKind::Permission);
    let elsewhere = Schedule::connect(&server.app_url()).await.unwrap();
    let other = Topic::<String>::named("elsewhere", "other:{id}").unwrap();
    let armed = elsewhere.arm(&other, ["1"], SOON, &String::new()).await.unwrap();
    assert_eq!(trigger_error(&armed), ErrorKind::Permission, "keys of other prefixes are not this user's");
}

/// With no right at all to begin with, a listener says so and ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_without_rights_does_not_start() {
    show_log();
    let server = Server::start().await;
    server.cmd(&["ACL", "SETUSER", "bare", "on", ">pass", "+@connection"]).await;
    let error = refusal_of_a_listener(&server.url_for("bare", "pass")).await;
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    let error = Schedule::connect(&server.url_for("bare", "pass")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
}
