//! Asks that go together: in one request, and those of a kind in one script call.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Shared;
use super::ask::{Ask, Kind, Waiting, change_of};
use super::turn::Answered;
use crate::connection::{RetryDelays, may_pass, refused};
use crate::error::Result;
use crate::wire::Changed;

/// Calls of a few kinds; no key twice in all of them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    calls: Vec<Call>,
}

/// The asks of one kind.
#[derive(Debug)]
struct Call {
    kind: Kind,
    asks: Vec<Waiting>,
    /// Whether it may have been executed.
    repeat: bool,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn add(&mut self, waiting: Waiting) {
        let kind = waiting.ask.kind();
        match self.calls.iter_mut().find(|call| call.kind == kind) {
            Some(call) => call.asks.push(waiting),
            None => self.calls.push(Call { kind, asks: vec![waiting], repeat: false }),
        }
    }

    /// Sends what is asked until each has an answer, or its caller's patience has run out. Returns the keys, and the answers
    /// that came last.
    pub(super) async fn carry(mut self, lane: &Shared) -> (Vec<Bytes>, Answered) {
        let asks = self.calls.iter().flat_map(|call| &call.asks);
        let keys = asks.flat_map(|waiting| waiting.ask.keys().cloned()).collect();
        let mut delays = RetryDelays::default();
        loop {
            let answers = {
                let asks: Vec<Vec<&Ask>> = self.calls.iter().map(Call::asks).collect();
                let changes: Vec<_> =
                    self.calls.iter().zip(&asks).map(|(call, asks)| change_of(asks, call.repeat)).collect();
                lane.store.change(&lane.at, &changes).await
            };
            let wait = delays.next();
            let mut answered = Answered::default();
            let calls = self.calls.drain(..).zip(answers);
            self.calls = calls.filter_map(|(call, answer)| call.heard(answer, wait, &mut answered)).collect();
            if self.calls.is_empty() {
                return (keys, answered);
            }
            answered.hand_over().await;
            tokio::time::sleep(wait).await;
        }
    }
}

impl Call {
    fn asks(&self) -> Vec<&Ask> {
        self.asks.iter().map(|waiting| &waiting.ask).collect()
    }

    /// Adds the answers to those that are `answered`. Returns the asks that are to be sent again after `wait`.
    fn heard(
        mut self,
        answer: Result<Vec<Result<Changed>>>,
        wait: Duration,
        answered: &mut Answered,
    ) -> Option<Self> {
        let error = match answer {
            Ok(each) => {
                let mut each = each.into_iter();
                for waiting in self.asks {
                    let count = waiting.ask.len();
                    answered.add(waiting, Ok(each.by_ref().take(count).collect()));
                }
                return None;
            }
            Err(error) => error,
        };
        self.repeat |= error.maybe_done();
        let again = Instant::now() + wait;
        let (patient, given_up): (Vec<_>, Vec<_>) =
            self.asks.into_iter().partition(|waiting| may_pass(&error) && waiting.until > again);
        for waiting in given_up {
            answered.add(waiting, Err(refused(error.clone(), self.repeat)));
        }
        self.asks = patient;
        (!self.asks.is_empty()).then_some(self)
    }
}
