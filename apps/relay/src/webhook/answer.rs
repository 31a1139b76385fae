//! Maps the receiver's answer to the end of an attempt.

use std::time::{Duration, SystemTime};

use keylapse::{Done, Failure, Outcome};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::class::CallClass;

/// The snooze after a 429 without `Retry-After`.
const TOO_MANY: Duration = Duration::from_secs(60);
/// The shortest snooze after a 429. A shorter one would call the receiver in a loop.
const SOONEST: Duration = Duration::from_secs(1);
/// The longest delay that a receiver can ask for at a time.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The end of an attempt.
#[derive(Debug)]
pub(crate) enum AnswerVerdict {
    /// The result that the handler returns.
    Ended(Result<Outcome, Failure>),
    /// The receiver does not exist any more: it answered 410.
    Gone,
}

/// Returns how the attempt ends, from the status and headers of an answer.
pub(crate) fn verdict(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> AnswerVerdict {
    let wait = retry_after(headers, now);
    let answered = || format!("the receiver answered {status}");
    AnswerVerdict::Ended(match CallClass::of(status) {
        CallClass::Delivered => Ok(Done.into()),
        CallClass::Gone => return AnswerVerdict::Gone,
        CallClass::RateLimited => Ok(Outcome::Snooze(wait.unwrap_or(TOO_MANY).max(SOONEST))),
        CallClass::Redirected => Err(Failure::retry(format!("{}: redirects are not followed", answered()))),
        _ => Err(match wait {
            Some(wait) => Failure::retry_no_sooner(wait, answered()),
            None => Failure::retry(answered()),
        }),
    })
}

/// Reads `Retry-After`, which is in seconds or a date (RFC 9110, 10.2.3). A longer delay is cut to `LONGEST`.
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
            AnswerVerdict::Gone => "gone".to_owned(),
            AnswerVerdict::Ended(Ok(outcome)) => format!("{outcome:?}"),
            AnswerVerdict::Ended(Err(failure)) => format!("{failure:?}"),
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
