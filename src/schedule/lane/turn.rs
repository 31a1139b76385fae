//! Answers that are handed to the callers' runtime.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;

use super::ask::{Answers, Waiting};
use crate::lock::lock;

/// A runtime that takes longer is blocked, or nobody drives it.
const TURN: Duration = Duration::from_millis(2);

/// Answers that came together.
#[derive(Debug, Default)]
pub(super) struct Answered(Vec<(Waiting, Answers)>);

impl Answered {
    pub(super) fn add(&mut self, waiting: Waiting, answers: Answers) {
        self.0.push((waiting, answers));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Answers, and returns when the callers have run: their next calls, if they have any, can go together. Returns the
    /// number of callers.
    ///
    /// A task on the callers' runtime wakes them: a runtime wakes its own tasks for less than another thread does. Where
    /// that runtime stands still, callers on other runtimes have their answers after [`TURN`].
    pub(super) fn hand_over(self) -> impl Future<Output = usize> {
        let count = self.0.len();
        let runtime = self.0.first().map(|(first, _)| first.runtime.clone());
        let answered = Arc::new(Mutex::new(self.0));
        let there = answered.clone();
        let turn = async move {
            send(&there);
            tokio::task::yield_now().await;
        };
        let turn = runtime.map(|runtime| runtime.spawn(turn));
        async move {
            if let Some(turn) = turn {
                let _ = timeout(TURN, turn).await;
                send(&answered);
            }
            count
        }
    }
}

/// Sends the answers that were not sent yet.
fn send(answered: &Mutex<Vec<(Waiting, Answers)>>) {
    let answered = mem::take(&mut *lock(answered));
    for (waiting, answers) in answered {
        waiting.answer(answers);
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Handle, Runtime};
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;
    use crate::error::Error;
    use crate::schedule::lane::{Ask, Jobs};

    fn idle() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    /// Two asks of callers who wait there, with their answers.
    fn two(waiting_at: &Handle) -> (Answered, [oneshot::Receiver<Answers>; 2]) {
        let _guard = waiting_at.enter();
        let mut answered = Answered::default();
        let receivers = [1, 2].map(|_| {
            let ask = Ask { triggers: false, jobs: Jobs::Cancel(Vec::new()) };
            let (waiting, receiver) = Waiting::new(ask, Instant::now());
            answered.add(waiting, Err(Error::invalid("this one")));
            receiver
        });
        (answered, receivers)
    }

    async fn all_are_answered(receivers: [oneshot::Receiver<Answers>; 2]) {
        for receiver in receivers {
            assert!(receiver.await.unwrap().unwrap_err().to_string().contains("this one"));
        }
    }

    #[tokio::test]
    async fn callers_have_run_when_their_turn_is_over() {
        let (answered, receivers) = two(&Handle::current());
        let callers = receivers.map(tokio::spawn);
        tokio::task::yield_now().await;
        assert_eq!(answered.hand_over().await, 2);
        for caller in callers {
            assert!(caller.is_finished());
        }
    }

    #[tokio::test]
    async fn a_runtime_that_nobody_drives_keeps_no_answer() {
        let idle = idle();
        let (answered, receivers) = two(idle.handle());
        assert_eq!(answered.hand_over().await, 2);
        all_are_answered(receivers).await;
        idle.shutdown_background();
    }

    #[tokio::test]
    async fn a_runtime_that_has_ended_keeps_no_answer() {
        let idle = idle();
        let (answered, receivers) = two(idle.handle());
        idle.shutdown_background();
        assert_eq!(answered.hand_over().await, 2);
        all_are_answered(receivers).await;
    }
}
