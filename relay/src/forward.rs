//! Puts each occurrence into a list or a stream, for workers in any language.

use std::time::Duration;

use keylapse::{Done, Failure, ForwardTo, Forwarded, Outcome, Result, Schedule};

use crate::message;
use crate::metrics;
use crate::occurrence::Occurrence;

/// How long one waits whose list is full: it is asked again and again, so that workers who catch up are fed.
const FULL: Duration = Duration::from_secs(1);

/// Of one topic.
#[derive(Debug)]
pub(crate) struct Forward(pub(crate) ForwardTo);

impl Forward {
    pub(crate) async fn deliver(
        &self,
        topic: &str,
        of: &Occurrence,
        schedule: &Schedule,
    ) -> Result<Outcome, Failure> {
        let ended = schedule.forward(&self.0, &of.id, message::json(topic, of)).await;
        metrics::forward(topic, word(&ended));
        match ended? {
            Forwarded::Full => Ok(Outcome::Snooze(FULL)),
            _ => Ok(Done.into()),
        }
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
