//! What the log says of attempts that went wrong.

use std::time::Duration;

use crate::escape::{Escaped, of_error};
use crate::log::{QuietSpan, debug, info, warn};
use crate::runtime::{Ended, RunningTopic, first_undecodable};
use crate::trace::{Extract, Traceparent};
use crate::wire::{DeadReason, End, Ending, Held, History, State};

/// Shows in the span of a lapse where its producer's trace stands, and has the program continue it there.
pub(super) fn continue_trace(topic: &RunningTopic, span: &QuietSpan, trace: Traceparent) {
    let trace = trace.to_string();
    span.with(|span| {
        span.record("traceparent", &*trace);
        if let Some(Extract(extract)) = &topic.extract {
            extract(span, &trace);
        }
    });
}

/// A failed attempt.
pub(super) struct Failed {
    kind: Ending,
    error: String,
    retry_in: Option<Duration>,
    attempts_left: u32,
}

impl Failed {
    /// None where it has not failed; so many attempts its topic allows.
    pub(super) fn of(ended: &Ended, attempt: u32, attempts: u32) -> Option<Self> {
        let Ended::Failed(kind, failure) = ended else { return None };
        let (error, attempts_left) = (of_error(&failure.error), attempts.saturating_sub(attempt));
        Some(Self { kind: *kind, error, retry_in: None, attempts_left })
    }

    /// What was decided to follow.
    pub(super) fn followed_by(self, end: Option<&End>) -> Self {
        match end {
            Some(End::Retry { delay, .. }) => Self { retry_in: Some(Duration::from_millis(*delay)), ..self },
            _ => Self { attempts_left: 0, ..self },
        }
    }

    /// In the span of the lapse, which names the key.
    pub(super) fn log(self, topic: &RunningTopic, span: &QuietSpan) {
        let Self { kind, error, retry_in, attempts_left } = self;
        let (kind, retry_in) = (kind.as_str(), retry_in.map(tracing::field::debug));
        span.within(|| info!(kind, error, retry_in, attempts_left, "attempt failed"));
        topic.last_failure.note_text(error);
    }
}

/// A payload could not be decoded, and this follows. Loud at the beginning and at the end, as there may be many and
/// each comes back often.
pub(super) fn undecodable_payload(
    topic: &RunningTopic,
    held: &Held,
    state: &State,
    error: &str,
    end: Option<&End>,
) {
    let key = Escaped(&held.key);
    match end {
        Some(End::Retry { delay, .. }) if first_undecodable(state).is_none() => {
            let (retry_in, gives_up) = (Duration::from_millis(*delay), topic.config.undecodable_for);
            warn!(?topic, %key, error, ?retry_in, ?gives_up, "undecodable payload, put off: is it for another version of the program?");
        }
        Some(End::Retry { .. }) => debug!(?topic, %key, error, "undecodable payload, put off again"),
        _ => warn!(?topic, %key, error, "undecodable payload: dead letter"),
    }
}

/// A timer has ended as a dead letter, with this history.
pub(super) fn dead_letter(topic: &RunningTopic, held: &Held, reason: DeadReason, history: &[u8]) {
    let (key, last) = (Escaped(&held.key), History::decode(history).0.pop());
    let attempts = last.as_ref().map(|last| last.attempt);
    // Another line says why a payload cannot be decoded, without text that may quote it.
    let error = last.filter(|_| reason != DeadReason::Undecodable).map(|last| of_error(&last.error));
    topic.meter.dead(reason, 1);
    warn!(?topic, %key, reason = reason.as_str(), attempts, error, "dead letter");
}
