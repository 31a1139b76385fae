//! Adds each occurrence to a list or a stream, for workers in any language.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keylapse::forward::{ForwardTo, Forwarded};
use keylapse::{Done, Failure, Outcome, Result, Schedule};

use crate::message::{self, Form};
use crate::metrics;
use crate::occurrence::Occurrence;
use crate::turns::RetryPacer;

/// The shortest delay of a timer that finds the list full. It is short, so that workers who catch up stay busy.
const FULL_LIST_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The list or stream of one topic.
#[derive(Debug)]
pub(crate) struct Forward {
    to: ForwardTo,
    form: Form,
    /// Paces the timers that find it full.
    turns: Mutex<RetryPacer>,
}

impl Forward {
    pub(crate) fn new(to: ForwardTo, form: Form) -> Self {
        Self { to, form, turns: Mutex::new(RetryPacer::new()) }
    }

    pub(crate) async fn deliver(
        &self,
        topic: &str,
        of: &Occurrence,
        schedule: &Schedule,
    ) -> Result<Outcome, Failure> {
        let ended = schedule.forward(&self.to, &of.id, message::json(topic, self.form, of)).await;
        metrics::forward(topic, word(&ended));
        match ended? {
            Forwarded::Full => Ok(Outcome::Snooze(self.turn())),
            _ => Ok(Done.into()),
        }
    }

    fn turn(&self) -> Duration {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).take(FULL_LIST_RETRY_PAUSE)
    }
}

fn word(ended: &Result<Forwarded>) -> &'static str {
    match ended {
        Ok(Forwarded::Full) => "full",
        Ok(Forwarded::Duplicate) => "duplicate",
        Ok(_) => "added",
        Err(_) => "failed",
    }
}
