//! What the receiver's answer means for the timer.

use std::time::{Duration, SystemTime};

use keylapse::{Done, Failure, Outcome};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::class::Class;

/// How long one that answers 429 without saying so is left alone.
const TOO_MANY: Duration = Duration::from_secs(60);
/// However soon it says: else it would be called again and again.
const SOONEST: Duration = Duration::from_secs(1);
/// A receiver cannot put anything off for longer than this at a time.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The end of an attempt.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// As the library has it.
    Ended(Result<Outcome, Failure>),
    /// There is no such receiver any more.
    Gone,
}

/// Of the head of an answer.
pub(crate) fn verdict(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Verdict {
    let wait = retry_after(headers, now);
    let said = || format!("the receiver answered {status}");
    Verdict::Ended(match Class::of(status) {
        Class::Delivered => Ok(Done.into()),
        Class::Gone => return Verdict::Gone,
        Class::TooMany => Ok(Outcome::Snooze(wait.unwrap_or(TOO_MANY).max(SOONEST))),
        Class::Redirected => Err(Failure::retry(format!("{}: redirects are not followed", said()))),
        _ => Err(match wait {
            Some(wait) => Failure::retry_no_sooner(wait, said()),
            None => Failure::retry(said()),
        }),
    })
}

/// In seconds, or as a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, retry_after: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, text.parse().unwrap());
        }
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        match verdict(StatusCode::from_u16(status).unwrap(), &headers, now) {
            Verdict::Gone => "gone".to_owned(),
            Verdict::Ended(Ok(outcome)) => format!("{outcome:?}"),
            Verdict::Ended(Err(failure)) => format!("{failure:?}"),
        }
    }

    #[test]
    fn answers_end_or_put_off() {
        for (status, retry_after, meant) in [
            (200, None, "Done"),
            (204, Some("9"), "Done"),
            (410, Some("9"), "gone"),
            (429, None, "Snooze(60s)"),
            (429, Some("7"), "Snooze(7s)"),
            (429, Some("Wed, 21 Oct 2015 07:29:30 GMT"), "Snooze(90s)"),
            (429, Some("Wed, 21 Oct 2015 07:00:00 GMT"), "Snooze(1s)"),
            (429, Some("99999999999"), "Snooze(86400s)"),
            (429, Some("soon"), "Snooze(60s)"),
            (500, None, "Failure(ByPolicy: the receiver answered 500 Internal Server Error)"),
            (503, Some("0"), "Failure(NoSooner(0ns): the receiver answered 503 Service Unavailable)"),
            (503, Some("7"), "Failure(NoSooner(7s): the receiver answered 503 Service Unavailable)"),
            (404, None, "Failure(ByPolicy: the receiver answered 404 Not Found)"),
            (302, None, "Failure(ByPolicy: the receiver answered 302 Found: redirects are not followed)"),
        ] {
            assert_eq!(of(status, retry_after), meant, "{status} {retry_after:?}");
        }
    }
}
