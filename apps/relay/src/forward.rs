//! Puts each occurrence into a list or a stream, for workers in any language.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keylapse::forward::{ForwardTo, Forwarded};
use keylapse::{Done, Failure, Outcome, Result, Schedule};

use crate::message::{self, Form};
use crate::metrics;
use crate::occurrence::Occurrence;
use crate::turns::Turns;

/// How soon one whose list is full asks again, at the least: workers who catch up are to be fed.
const SOON: Duration = Duration::from_millis(100);

/// Of one topic.
#[derive(Debug)]
pub(crate) struct Forward {
    to: ForwardTo,
    form: Form,
    /// Of those who find it full.
    turns: Mutex<Turns>,
}

impl Forward {
    pub(crate) fn new(to: ForwardTo, form: Form) -> Self {
        Self { to, form, turns: Mutex::new(Turns::new()) }
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
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).take(SOON)
    }
}

fn word(ended: &Result<Forwarded>) -> &'static str {
    match ended {
        Ok(Forwarded::Full) => "full",
        Ok(Forwarded::Before) => "before",
        Ok(_) => "put",
        Err(_) => "failed",
    }
}
