//! Of which partitions wake-ups are heard: of those that the server holds, which changes while slots of a cluster move.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::Result;
use crate::events::event::{Event, Gap};
use crate::events::open::{WakeUps, hear_wake_ups};
use crate::events::session::Session;
use crate::log::warn;

/// Wake-ups of partitions that ought to be heard here and are not, as a slot has just moved, are asked for again after this.
const JOIN_AGAIN: Duration = Duration::from_millis(250);
/// Of which partitions wake-ups are heard besides, or why they are refused.
pub(super) type Joined = keylapse_connection::RedisResult<Result<BTreeSet<usize>>>;

impl Session<'_> {
    /// The server holds a partition no more; unless it does again by now, which it is asked.
    pub(super) async fn lost_wake_ups(&mut self, partition: usize) {
        if let WakeUps::Of(heard) = &mut self.opened.wake_ups {
            heard.remove(&partition);
        }
        self.supervisor.pass(Event::Moved).await;
        self.plan_joining();
    }

    /// What is not heard of all that the server holds.
    fn unheard(&self) -> Vec<usize> {
        match &self.opened.wake_ups {
            WakeUps::Refused => Vec::new(),
            WakeUps::Of(heard) => {
                self.share.partitions.iter().copied().filter(|one| !heard.contains(one)).collect()
            }
        }
    }

    /// At once; what was asked for in vain, after a while.
    pub(super) fn plan_joining(&mut self) {
        if let WakeUps::Of(heard) = &mut self.opened.wake_ups {
            heard.retain(|one| self.share.partitions.binary_search(one).is_ok());
        }
        self.join_at = (!self.unheard().is_empty()).then(Instant::now);
    }

    pub(super) fn join(&mut self, joining: &mut JoinSet<Joined>) {
        self.join_at = None;
        if !joining.is_empty() {
            return; // what is missing then is seen when that has ended
        }
        let (asked, decoder) = (self.unheard(), self.supervisor.source.decoder.clone());
        let connection = self.opened.for_wake_ups.clone();
        joining.spawn(async move { hear_wake_ups(&connection, &decoder, &asked).await });
    }

    /// More wake-ups are heard from now on. What they would have said before has to be looked for.
    pub(super) async fn joined(&mut self, answer: Result<BTreeSet<usize>>) {
        match (answer, &mut self.opened.wake_ups) {
            (Ok(new), WakeUps::Of(heard)) => {
                heard.extend(&new);
                if !new.is_empty() {
                    self.supervisor.pass(Event::Joined(new.into_iter().collect())).await;
                }
            }
            (Ok(_), WakeUps::Refused) => {}
            (Err(error), _) => {
                warn!(server = %self.server, %error, "no wake-ups: new timers are found by sweeps");
                self.opened.wake_ups = WakeUps::Refused;
                self.supervisor.pass(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
        if !self.unheard().is_empty() {
            self.supervisor.pass(Event::Moved).await;
            self.join_at = Some(Instant::now() + JOIN_AGAIN);
        }
    }
}
