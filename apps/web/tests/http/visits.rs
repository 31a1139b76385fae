//! Tokens that are shown, right and wrong; and visits, from the login to the logout.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse_support::eventually;
use keylapse_web::{Access, Web};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::http::answer::Answer;
use crate::http::audit::{hear, lines};
use crate::http::site::{FORM, READ_TOKEN, Site, TOKEN, guarded, nowhere, read};
use crate::http::slow::PATIENCE;

const WRONG: &str = "0123456789abcdef0123456789abcdeX";

async fn serve(access: &Access) -> Site {
    Site::serve(Web::new(nowhere(), access.clone()), access).await
}

async fn log_in(site: &Site, token: &str) -> Answer {
    site.ask("POST", "/login", &[FORM], &format!("token={token}")).await
}

/// The cookie that an answer has the browser keep: its name and what is in it.
fn cookie(answer: &Answer) -> (String, String) {
    let line = answer.lines.iter().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let (name, value) = line.split(';').next().and_then(|one| one.split_once('=')).expect("a value");
    (name.to_owned(), value.to_owned())
}

/// Returns whether somebody with this cookie comes in.
async fn comes_in(site: &Site, (name, value): &(String, String)) -> bool {
    site.ask("GET", "/api/v1/no-such-route", &[&format!("Cookie: {name}={value}")], "").await.status == 404
}

#[tokio::test]
async fn a_visit_ends_with_the_logout_for_all_who_have_its_cookie() {
    let site = serve(&guarded()).await;
    let (mine, others) = (cookie(&log_in(&site, TOKEN).await), cookie(&log_in(&site, TOKEN).await));
    assert!(comes_in(&site, &mine).await && comes_in(&site, &others).await);
    let head = format!("Cookie: {}={}", mine.0, mine.1);
    assert_eq!(site.ask("POST", "/logout", &[&head], "").await.status, 303);
    assert!(!comes_in(&site, &mine).await, "somebody has kept it");
    assert!(comes_in(&site, &others).await);
}

#[tokio::test]
async fn two_servers_of_one_host_keep_a_cookie_each() {
    let (one, other) = (serve(&guarded()).await, serve(&guarded()).await);
    let (of_one, of_other) = (cookie(&log_in(&one, TOKEN).await), cookie(&log_in(&other, READ_TOKEN).await));
    assert_ne!(of_one.0, of_other.0);
    assert!(comes_in(&one, &of_one).await && comes_in(&other, &of_other).await);
    // A browser sends both to both.
    let both = format!("Cookie: {}={}; {}={}", of_one.0, of_one.1, of_other.0, of_other.1);
    for site in [one, other] {
        assert_eq!(site.ask("GET", "/api/v1/no-such-route", &[&both], "").await.status, 404);
    }
}

#[tokio::test]
async fn a_wrong_token_is_written_down_with_its_address() {
    hear();
    let site = serve(&guarded()).await;
    let ask = async |words: &str, request: String| {
        let mut stream = site.connect().await;
        let from = stream.local_addr().expect("an address");
        stream.write_all(request.as_bytes()).await.expect("a request");
        assert!([401, 403].contains(&read(stream).await.expect("an answer").status));
        // Another test's client may have had the same port before.
        let lines = lines(&format!("from=\"{from}\""));
        let line = lines.last().unwrap_or_else(|| panic!("{words} from {from} is not written down"));
        assert!(line.contains("wrong token") && line.contains(words), "{line}");
        assert!(!line.contains(WRONG) && !line.contains("forwarded"), "{line}");
    };
    let head = "Host: localhost\r\nConnection: close\r\nX-Forwarded-For: 192.0.2.7\r\n";
    let bearer = format!("Authorization: Bearer {WRONG}\r\n");
    ask("by=\"token\"", format!("GET /api/v1/status HTTP/1.1\r\n{head}{bearer}\r\n")).await;
    let form = format!("token={WRONG}");
    let length = format!("Content-Length: {}\r\n{FORM}\r\n", form.len());
    ask("by=\"login\"", format!("POST /login HTTP/1.1\r\n{head}{length}\r\n{form}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_answered_some_a_second_and_the_right_one_at_once() {
    let site = serve(&guarded()).await;
    let span = Duration::from_secs(4);
    let guess = async |_| {
        let (began, mut answered) = (Instant::now(), 0);
        while let Some(left) = span.checked_sub(began.elapsed()) {
            let head = format!("Authorization: Bearer {WRONG}");
            let answer = timeout(left, site.ask("GET", "/api/v1/no-such-route", &[&head], "")).await;
            answered += answer.map_or(0, |answer| usize::from(answer.status == 401));
        }
        answered
    };
    let right = async {
        tokio::time::sleep(span / 4).await;
        for _ in 0..10 {
            let began = Instant::now();
            let head = format!("Authorization: Bearer {TOKEN}");
            assert_eq!(site.ask("GET", "/api/v1/no-such-route", &[&head], "").await.status, 404);
            assert_eq!(log_in(&site, READ_TOKEN).await.status, 303);
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        }
    };
    let (answered, ()) = tokio::join!(join_all((0..32).map(guess)), right);
    let answered: usize = answered.into_iter().sum();
    assert!(answered <= 40, "{answered} guesses in {span:?}");
}

/// From one address, as all who come through a proxy.
#[tokio::test(flavor = "multi_thread")]
async fn beside_guessers_who_do_not_wait_a_token_that_was_shown_before_comes_in() {
    let site = serve(&guarded()).await;
    let show = async |token: &str| {
        let head = format!("Authorization: Bearer {token}");
        site.ask("GET", "/api/v1/no-such-route", &[&head], "").await.status
    };
    // An answer that is no refusal comes late, and is not waited for.
    let guess = async || timeout(Duration::from_millis(100), show(WRONG)).await;
    let guessers = join_all((0..32).map(async |_| {
        loop {
            _ = guess().await;
        }
    }));
    assert_eq!(show(TOKEN).await, 404);
    let others = async {
        eventually(PATIENCE, "a refusal", async || guess().await == Ok(429)).await;
        for _ in 0..20 {
            assert_eq!(timeout(PATIENCE / 2, show(TOKEN)).await, Ok(404));
        }
    };
    tokio::select! {
        _ = guessers => unreachable!("they go on"),
        () = others => {}
    }
}

#[tokio::test]
async fn a_login_is_small_and_comes_in_time() {
    let site = serve(&guarded()).await;
    let large = format!("token={}", "a".repeat(4000));
    assert_eq!(site.ask("POST", "/login", &[FORM], &large).await.status, 413);
    let began = Instant::now();
    let mut stream = site.connect().await;
    let head =
        format!("POST /login HTTP/1.1\r\nHost: localhost\r\n{FORM}\r\nContent-Length: 100\r\n\r\ntoken=");
    stream.write_all(head.as_bytes()).await.expect("a head");
    let answer = read(stream).await.expect("an answer");
    assert_eq!(answer.status, 408, "{answer:?}");
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}
