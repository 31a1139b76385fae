//! Receivers that are ill.

use std::time::{Duration, Instant};

use keylapse_support::eventually;

use crate::{Receiver, Rig, Then};

const ONCE: &str = "max-attempts = 1";
const ALLOW: &str = "allow-addresses = [\"127.0.0.1\"]\ntimeout = \"500ms\"";
/// What the systems of both ends take before anybody reads it, and more.
const IN_BUFFERS: usize = 16 << 20;

/// What the letter says of a receiver that does this.
async fn said_of(then: Then) -> String {
    let receiver = Receiver::start(move |_, _| then.clone()).await;
    let rig = Rig::of_timers(&receiver.url(), ONCE, ALLOW).await;
    rig.arm("1", "1").await;
    format!("{:?}", rig.letters(1).await)
}

#[tokio::test]
async fn what_hangs_drips_or_closes_is_a_failure_in_time() {
    let since = Instant::now();
    let (hangs, drips, closes) =
        tokio::join!(said_of(Then::Hang), said_of(Then::Drip("HTTP/1.1 200 ")), said_of(Then::Close));
    assert!(hangs.contains("did not answer in time"), "{hangs}");
    assert!(drips.contains("did not answer in time"), "{drips}");
    assert!(closes.contains("the call failed"), "{closes}");
    assert!(since.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Receiver::start(|_, _| Then::status(200)).await;
    let to = vec![("location", target.url())];
    let said = said_of(Then::Answer(307, to)).await;
    assert!(said.contains("redirects are not followed"), "{said}");
    assert_eq!(target.count(), 0);
}

/// The answer's head has said all. A body that drips is waited for no longer than any answer.
#[tokio::test]
async fn a_body_is_read_within_bounds() {
    let receiver = Receiver::start(|call, _| match call {
        1 => Then::Body(100 << 20),
        2 => Then::Drip("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
        _ => Then::status(200),
    })
    .await;
    let rig = Rig::of_timers(&receiver.url(), &format!("{ONCE}\nconcurrency = 1"), ALLOW).await;
    for id in ["1", "2", "3"] {
        rig.arm(id, "1").await;
    }
    let calls = receiver.calls(3).await;
    eventually(Duration::from_secs(20), "the connection to be closed", async || receiver.cut() > 0).await;
    assert!(receiver.sent() < IN_BUFFERS, "{} bytes were taken", receiver.sent());
    assert_ne!(calls[0].id(), calls[1].id());
    rig.none_left().await;
}

#[tokio::test]
async fn a_head_without_end_is_not_read_to_its_end() {
    let receiver = Receiver::start(|_, _| Then::Head(100 << 20)).await;
    let rig = Rig::of_timers(&receiver.url(), ONCE, ALLOW).await;
    rig.arm("1", "1").await;
    let said = format!("{:?}", rig.letters(1).await);
    assert!(said.contains("the call failed"), "{said}");
    assert!(receiver.sent() < IN_BUFFERS, "{} bytes were taken", receiver.sent());
}

#[tokio::test]
async fn what_fails_is_called_again() {
    let receiver = Receiver::start(|call, _| match call {
        1 => Then::status(500),
        2 => Then::Close,
        3 => Then::Answer(503, vec![("retry-after", "1".to_owned())]),
        _ => Then::status(200),
    })
    .await;
    let rig = Rig::of_timers(&receiver.url(), "retry = { every = \"50ms\" }", ALLOW).await;
    rig.arm("1", "1").await;
    let calls = receiver.calls(4).await;
    assert!(calls.iter().all(|call| call.id() == calls[0].id()));
    let waited = calls[3].at - calls[2].at;
    assert!(waited >= Duration::from_millis(990), "{waited:?}");
    rig.none_left().await;
}

/// Of a URL with two hosts, one of which hangs.
#[tokio::test]
async fn a_dead_host_holds_up_nobody_else_and_is_left_alone() {
    let dead = Receiver::start(|_, _| Then::Hang).await;
    let well = Receiver::start(|_, _| Then::Late(Duration::from_millis(20), 200)).await;
    // A hanging call holds its place until all of the other host are through.
    let webhook = format!(
        "allow-addresses = [\"127.0.0.1\"]\ntimeout = \"4s\"\nhosts = [\"{}\", \"{}\"]\nper-host = 4\n\
         circuit = {{ failures = 4, open-for = \"10m\" }}",
        dead.host(),
        well.host()
    );
    let rig = Rig::of_timers("{payload.url}", "concurrency = 8", &webhook).await;
    for id in 0..100 {
        rig.arm(&format!("dead{id}"), format!("{{\"url\":\"{}\"}}", dead.url())).await;
    }
    for id in 0..20 {
        rig.arm(&format!("well{id}"), format!("{{\"url\":\"{}\"}}", well.url())).await;
    }
    well.calls(20).await;
    assert!(dead.most_at_once() <= 4 && well.most_at_once() <= 4);
    // What fails once more at most are those that were under way: then nobody calls.
    rig.put_off("dead", 100 - 8).await;
    assert!(dead.count() <= 8, "{}", dead.count());
}

#[tokio::test]
async fn a_host_that_is_well_again_is_called_again() {
    let receiver = Receiver::start(|call, _| Then::status(if call <= 3 { 500 } else { 200 })).await;
    let webhook = format!("{ALLOW}\ncircuit = {{ failures = 3, open-for = \"300ms\" }}");
    let rig =
        Rig::of_timers(&receiver.url(), "retry = { every = \"50ms\" }\nconcurrency = 1", &webhook).await;
    for id in 0..5 {
        rig.arm(&id.to_string(), "1").await;
    }
    let calls = receiver.calls(8).await;
    let waited = calls[3].at - calls[2].at;
    assert!(waited >= Duration::from_millis(290), "{waited:?}");
    rig.none_left().await;
}

/// Receivers close connections that are idle. A call that is on its way at that moment is made again.
#[tokio::test]
async fn a_connection_that_closes_when_it_is_used_again_is_no_failure() {
    let receiver = Receiver::start(|_, call| match call.of_line {
        1 => Then::status(200),
        _ => Then::Close,
    })
    .await;
    let webhook = format!("{ALLOW}\ncircuit = {{ failures = 1, open-for = \"10m\" }}");
    let rig = Rig::of_timers(&receiver.url(), &format!("{ONCE}\nconcurrency = 4"), &webhook).await;
    for id in 0..200 {
        rig.arm(&id.to_string(), "1").await;
    }
    rig.none_left().await;
    assert_eq!(rig.dead().await, 0);
    let calls = receiver.calls(200).await;
    assert!(calls.iter().all(|call| call.json()["data"]["attempt"] == 1));
    assert!(calls.iter().any(|call| call.of_line > 1), "no connection was used again");
}

/// Of a new connection there is nothing that could have made it idle.
#[tokio::test]
async fn a_new_connection_that_closes_without_an_answer_is_one_failure() {
    let receiver = Receiver::start(|_, _| Then::Close).await;
    let rig = Rig::of_timers(&receiver.url(), ONCE, ALLOW).await;
    rig.arm("1", "1").await;
    rig.letters(1).await;
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn retry_after_never_shortens_the_policy() {
    let receiver = Receiver::start(|call, _| match call {
        1 => Then::Answer(500, vec![("retry-after", "0".to_owned())]),
        2 => Then::Answer(503, vec![("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT".to_owned())]),
        _ => Then::status(200),
    })
    .await;
    let rig = Rig::of_timers(&receiver.url(), "retry = { every = \"500ms\" }", ALLOW).await;
    rig.arm("1", "1").await;
    let calls = receiver.calls(3).await;
    for two in calls.windows(2) {
        let waited = two[1].at - two[0].at;
        assert!(waited >= Duration::from_millis(490), "{waited:?}");
    }
}
