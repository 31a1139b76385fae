//! Errors and texts of programs that have no end.

use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use keylapse::{Backoff, Client, ErrorKind, Failure, Lapse, Schedule, Topic};
use keylapse_testing::TestBed;
use tokio::io::DuplexStream;

use super::within_deadline;

/// More than a message of ours may have, whatever it is made of.
const MOST: usize = 16 << 10;

/// An error that is its own cause.
#[derive(Debug)]
struct Round;

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it goes round")
    }
}

impl Error for Round {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

/// An error with ever another cause, whose text is ever another.
#[derive(Debug)]
struct Deeper(&'static str, Option<Box<Deeper>>);

impl fmt::Display for Deeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Deeper {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|deeper| deeper as _)
    }
}

/// A text that has no end.
#[derive(Debug)]
struct Endless;

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        loop {
            f.write_str("and so on ")?;
        }
    }
}

impl Error for Endless {}

/// A text that cannot be written.
struct Unwritable;

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as far as it goes")?;
        Err(fmt::Error)
    }
}

#[track_caller]
fn text_of<F: FnOnce() -> Failure + Send + 'static>(failure: F) -> String {
    let text = within_deadline("a failure", move || failure().message().to_owned());
    assert!(text.len() <= MOST, "{} bytes", text.len());
    text
}

#[test]
fn causes_that_go_round_have_an_end() {
    let text = text_of(|| Failure::from(Round));
    assert!(text.starts_with("it goes round"), "{text}");
}

#[test]
fn causes_without_number_are_cut_and_the_first_stay() {
    let deep = |text| (0..5000).fold(None, |cause, _| Some(Box::new(Deeper(text, cause)))).unwrap();
    let text = text_of(move || Failure::from(Deeper("paying", Some(deep("another")))));
    assert!(text.starts_with("paying: another"), "{text}");
    // One that is quoted in the text before it adds nothing to it.
    assert_eq!(text_of(move || Failure::from(Deeper("paying", Some(deep("paying"))))), "paying");
}

#[test]
fn texts_without_end_are_cut_wherever_they_stand() {
    for text in [
        text_of(|| Failure::retry(Endless)),
        text_of(|| Failure::retry_after(Duration::from_secs(1), Endless)),
        text_of(|| Failure::retry_no_sooner(Duration::from_secs(1), Endless)),
        text_of(|| Failure::dead(Endless)),
        text_of(|| Failure::from(Endless)),
        text_of(|| Failure::from(io::Error::other(Endless))),
    ] {
        assert!(text.starts_with("and so on and so on"), "{text}");
    }
}

#[test]
fn both_ends_of_a_long_text_are_kept() {
    let long = || format!("paying: {}: connection refused", "x".repeat(1 << 20));
    for text in [
        text_of(move || Failure::retry(long())),
        text_of(move || Failure::from(long())),
        text_of(move || Failure::from(io::Error::other(long()))),
    ] {
        assert!(text.starts_with("paying: x") && text.ends_with("x: connection refused"), "{text}");
    }
    assert_eq!(text_of(|| Failure::retry("short")), "short");
}

#[test]
fn a_text_that_cannot_be_written_is_kept_as_far_as_it_goes() {
    assert_eq!(text_of(|| Failure::retry(Unwritable)), "as far as it goes");
}

/// A handler's error becomes a failure in its own attempt: nothing else waits for it.
#[tokio::test(start_paused = true)]
async fn attempts_that_fail_with_them_are_retried_and_end_as_dead_letters() {
    let bed = TestBed::new();
    let topic = Topic::<String>::new("endless:{id}").unwrap();
    let topic = topic.retry(Backoff::fixed(Duration::from_secs(1))).max_attempts(2);
    let fail = |lapse: Lapse<String>| async move {
        match lapse.payload().as_str() {
            "round" => Err::<(), Failure>(Round.into()),
            "endless" => Err(Endless.into()),
            _ => panic!("{}", "without end ".repeat(100_000)),
        }
    };
    let bed = bed.expect_panics();
    let listening = bed.listen(|builder| builder.on(topic.clone(), fail)).await.unwrap();
    for what in ["round", "endless", "panic"] {
        let _ = bed.schedule().arm(&topic, what, Duration::ZERO, &what.to_owned()).await.unwrap();
    }
    bed.advance(Duration::from_secs(5)).await;
    let letters = bed.schedule().dead_letters(&topic).page(10).await.unwrap();
    assert_eq!(letters.len(), 3);
    for letter in letters {
        assert!((10..=600).contains(&letter.last_error().unwrap().len()), "{letter:?}");
    }
    listening.stop().await.unwrap();
}

/// Streams of a program that cannot be opened.
#[test]
fn an_error_without_end_of_what_opens_streams_is_a_server_that_is_away() {
    let error = within_deadline("a client", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = || std::future::ready(Err::<DuplexStream, _>(io::Error::other(Endless)));
        let client = Client::new("redis://localhost/").unwrap().retry_for(Duration::ZERO).connect_with(open);
        runtime.block_on(Schedule::connect(client)).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().len() < MOST);
}

/// A payload whose author refuses to write it, at length.
struct Refused;

impl serde::Serialize for Refused {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("without end ".repeat(100_000)))
    }
}

impl<'de> serde::Deserialize<'de> for Refused {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}

#[tokio::test]
async fn a_payload_that_is_refused_at_length_has_a_short_error() {
    let schedule = Schedule::new(Client::new("redis://127.0.0.1:1/").unwrap());
    let topic = Topic::<Refused>::new("refused:{id}").unwrap();
    let error = schedule.arm(&topic, "1", Duration::ZERO, &Refused).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert!(error.to_string().len() < MOST, "{} bytes", error.to_string().len());
}
