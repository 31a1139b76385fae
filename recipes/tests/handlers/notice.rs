use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::{Router, routing};
use keylapse::dead_letters::DeadReason;
use keylapse::{Backoff, Done, Lapse};
use keylapse_testing::TestBed;
use recipes::notice::merchant::Merchant;
use recipes::notice::webhook::{Notice, Secret, Sender};
use recipes::notice::with_keylapse::{announce, notices, notify, post};
use recipes::stage::ledger::Event;

use crate::handlers::support::Notes;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn secret() -> Secret {
    Secret::new(SECRET).expect("a valid secret")
}

/// Runs [`notify`] with virtual time paused: it does not advance while a blocking task runs.
async fn notify_in_no_time(lapse: Lapse<Notice>, sender: Sender) -> Result<Done> {
    let (answered, until_answered) = std::sync::mpsc::channel::<()>();
    let still = tokio::task::spawn_blocking(move || until_answered.recv().is_err());
    let answer = notify(lapse, sender).await;
    drop(answered);
    still.await?;
    answer
}

/// Returns when the retries of `payment_notice` begin, measured from the first attempt.
fn retry_times() -> Vec<Duration> {
    let backoff = Backoff::payment_notice();
    let waits = (1..16).map(|attempt| backoff.delay(attempt));
    waits.scan(Duration::ZERO, |sum, wait| Some((*sum += wait, *sum).1)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_merchant_who_answers_at_the_last_attempt_of_a_day_has_booked_once() -> Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), notices(Backoff::payment_notice())?);
    let merchant = Merchant::open(secret(), notes.world(&[("42", 15)])).await?;
    let sender = Sender::new(secret())?;
    bed.listen(|listener| listener.state(sender).on(topic.clone(), notify_in_no_time)).await?;
    announce(&bed.schedule(), &merchant.notice("42"), bed.now()).await?;
    bed.until_finished().await;
    assert_eq!((notes.jobs(Event::Failed).len(), notes.jobs(Event::Done)), (15, vec!["42".to_owned()]));
    assert_eq!(merchant.booked(), 1);
    let runs = bed.runs(&topic);
    assert!(runs.iter().all(|run| run.id == runs[0].id), "one id");
    let since_first: Vec<_> = runs[1..].iter().map(|run| run.began - runs[0].began).collect();
    for (began, expected) in since_first.iter().zip(retry_times()) {
        let late = began.checked_sub(expected).expect("not early");
        assert!(late < Duration::from_millis(100), "{late:?} late after {expected:?}");
    }
    assert!(since_first.len() == 15 && since_first[14] > DAY, "{since_first:?}");
    assert_eq!(bed.schedule().dead_letters(&topic).page(1).await?.len(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_always_fails_becomes_a_dead_letter_and_keeps_its_id_after_a_replay() -> Result<()> {
    let (bed, notes, topic) = (TestBed::new(), Notes::new(), notices(Backoff::payment_notice())?);
    let merchant = Merchant::open(secret(), notes.world(&[("42", 16)])).await?;
    let sender = Sender::new(secret())?;
    bed.listen(|listener| listener.state(sender).on(topic.clone(), notify_in_no_time)).await?;
    announce(&bed.schedule(), &merchant.notice("42"), bed.now()).await?;
    bed.until_finished().await;
    let schedule = bed.schedule();
    let dead_letters = schedule.dead_letters(&topic).page(2).await?;
    let [dead] = &dead_letters[..] else { panic!("{dead_letters:?}") };
    assert_eq!((dead.reason, dead.attempts), (DeadReason::Exhausted, 16));
    assert_eq!(dead.last_error(), Some("the merchant answered 503 Service Unavailable"));
    assert_eq!(merchant.booked(), 0);
    assert_eq!(schedule.replay(dead).await?, keylapse::dead_letters::Replayed::Replayed);
    bed.until_finished().await;
    let runs = bed.runs(&topic);
    assert_eq!((merchant.booked(), runs.len(), &runs[16].id), (1, 17, &runs[0].id));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_merchant_who_has_closed_is_not_asked_again() -> Result<()> {
    let (bed, topic) = (TestBed::new(), notices(Backoff::payment_notice())?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/paid", listener.local_addr()?);
    let app = Router::new().route("/paid", routing::post(async || StatusCode::GONE));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let sender = Sender::new(secret())?;
    bed.listen(|listener| listener.state(sender).on(topic.clone(), notify_in_no_time)).await?;
    announce(&bed.schedule(), &Notice { url, order: "42".to_owned(), cents: 1 }, bed.now()).await?;
    bed.until_finished().await;
    let dead_letters = bed.schedule().dead_letters(&topic).page(1).await?;
    assert_eq!(
        (dead_letters[0].reason, dead_letters[0].last_error()),
        (DeadReason::Permanent, Some("the merchant has closed"))
    );
    assert_eq!(bed.runs(&topic).len(), 1);
    Ok(())
}

/// The test vector of the Standard Webhooks libraries.
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const AT: u64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn headers(id: &str, at: &str, signature: &str) -> HeaderMap {
    let rows = [("webhook-id", id), ("webhook-timestamp", at), ("webhook-signature", signature)];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    rows.map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value"))).collect()
}

#[test]
fn a_notice_is_signed_as_in_standard_webhooks() -> Result<()> {
    let (secret, at) = (secret(), AT.to_string());
    assert_eq!(secret.sign(ID, AT, BODY)?, SIGNATURE);
    assert_eq!(secret.verify(&headers(ID, &at, SIGNATURE), BODY, AT + 300), Some(ID));
    let two = format!("v1,AAAA v2,{} {SIGNATURE}", &SIGNATURE[3..]);
    assert_eq!(secret.verify(&headers(ID, &at, &two), BODY, AT - 300), Some(ID));
    Ok(())
}

#[test]
fn a_wrong_secret_body_time_or_header_is_refused() -> Result<()> {
    let (secret, at) = (secret(), AT.to_string());
    let other = Secret::new("whsec_AAAA")?;
    assert_eq!(other.verify(&headers(ID, &at, SIGNATURE), BODY, AT), None, "another secret");
    assert_eq!(secret.verify(&headers(ID, &at, SIGNATURE), br#"{"test": 1}"#, AT), None, "another body");
    for now in [AT - 301, AT + 301] {
        assert_eq!(secret.verify(&headers(ID, &at, SIGNATURE), BODY, now), None, "another time");
    }
    let later = (AT + 1).to_string();
    let rows = [
        ("msg_2", &*at, SIGNATURE),
        (ID, &*later, SIGNATURE),
        (ID, "soon", SIGNATURE),
        (ID, &*at, &SIGNATURE[3..]),
        (ID, &*at, "v1,AAAA"),
        (ID, &*at, "v1,?"),
        ("", &*at, SIGNATURE),
        (ID, "", SIGNATURE),
        (ID, &*at, ""),
    ];
    for (id, at, signature) in rows {
        assert_eq!(secret.verify(&headers(id, at, signature), BODY, AT), None, "{id:?} {at:?} {signature:?}");
    }
    assert!(Secret::new("whsec_?").is_err());
    Ok(())
}

#[tokio::test]
async fn a_merchant_books_no_forged_or_invalid_notice() -> Result<()> {
    let notes = Notes::new();
    let merchant = Merchant::open(secret(), notes.world(&[])).await?;
    let notice = merchant.notice("42");
    let forger = Sender::new(Secret::new("whsec_AAAA")?)?;
    assert_eq!(post(&forger, &notice, "id").await?, StatusCode::UNAUTHORIZED);

    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let request = reqwest::Client::builder().no_proxy().build()?.post(&notice.url).body("garbage");
    let signed = headers("id", &now.to_string(), &secret().sign("id", now, b"garbage")?);
    assert_eq!(request.headers(signed).send().await?.status(), StatusCode::BAD_REQUEST);
    assert_eq!((merchant.booked(), notes.jobs(Event::Began).len()), (0, 0));

    let sender = Sender::new(secret())?;
    for _ in 0..2 {
        assert_eq!(post(&sender, &notice, "id").await?, StatusCode::OK);
    }
    assert_eq!((merchant.booked(), notes.jobs(Event::Done).len()), (1, 2), "received twice, booked once");
    Ok(())
}
