//! The heartbeats of a session: when the next key is created, which heartbeats are accepted, and what follows from
//! missing ones.
//!
//! Any client can publish a forged heartbeat, and positions in the stream count from its number. The answer of the
//! server's script cannot be forged, and it names a key before the server announces it. So a [`Chain`] starts only at
//! a heartbeat that the script has named to this listener. No later number may be higher than the server's clock can
//! be by then. docs/attach.md describes what a forger can still do.

use std::mem;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::boottime;
use crate::error::Result;
use crate::events::calls::{check_canary, make_canary};
use crate::events::decoder::numbers_of;
use crate::events::event::{Canary, Event, Gap};
use crate::events::open::WakeUps;
use crate::events::session::{EventFlow, Session};
use crate::log::{debug, info, warn};
use crate::stats::meter;

/// A heartbeat key is due when no heartbeat arrived for this long. One serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// The interval with `save_requests`, once it is known whether events arrive.
const FEW_CANARIES_EVERY: Duration = Duration::from_secs(20);
/// The maximum random delay of a heartbeat key, so that mostly one listener creates it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A heartbeat that does not arrive within this time is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);
/// The limit for the first heartbeat, as the script is loaded and the program starts.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// The time beyond the interval after which a server that may be replaced counts as silent.
const SILENT_AFTER: Duration = Duration::from_millis(CANARY_JITTER.as_millis() as u64 + 500);
/// The script is called this often to verify the numbers, even while other listeners create the keys.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// The least time between calls of the script after a heartbeat that was not accepted.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Missing heartbeats in a row that are logged. One may only be late, above all at a busy start.
const MISSED: usize = 2;
/// The allowed drift between the server's clock and ours, plus a thousandth of the time since.
const DRIFT: Duration = Duration::from_millis(5);
/// The maximum drift. If the last number exceeds the script's by more, the server's clock was set back.
const MAX_CLOCK_LEAD: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Returns the interval of heartbeats. `save_requests` lengthens it once events are known to arrive, or known not
    /// to.
    pub(super) fn canary_every(&self) -> Duration {
        let is_known =
            self.anchor == EventFlow::Holds || self.missed >= MISSED || self.supervisor.was_silent();
        let few = if is_known { FEW_CANARIES_EVERY } else { CANARY_EVERY };
        self.supervisor.source.rounds.pace(CANARY_EVERY, few)
    }

    /// Plans the next heartbeat key. If heartbeats number the events, calls the script after `ASK_EVERY` at the
    /// latest.
    fn plan_canary(&mut self) {
        self.ask_at = None;
        self.next_canary =
            Instant::now() + self.canary_every() + self.supervisor.source.rounds.about(CANARY_JITTER, 0.0);
        if let Some(asked) = self.asked.filter(|_| self.has_positions()) {
            self.next_canary = self.next_canary.min(asked + ASK_EVERY);
        }
    }

    /// Plans a call of the script soon. Its answer names a heartbeat that restores the chain.
    pub(super) fn ask_soon(&mut self) {
        let now = Instant::now();
        self.ask_at = Some(self.asked.map_or(now, |asked| now.max(asked + ASK_AGAIN)));
    }

    /// Starts to create the next heartbeat key, if no other call is pending (`idle`).
    pub(super) fn make_canary(&mut self, idle: bool) {
        let now = Instant::now();
        let Some(counter) = self.share.canaries.clone() else {
            // A server without slots would refuse the key, so no heartbeat can be due.
            self.asked = None;
            return self.plan_canary();
        };
        self.asked = Some(now);
        self.plan_canary();
        let within = if self.anchor == EventFlow::Never { FIRST_WITHIN } else { CANARY_WITHIN };
        self.missing_at.get_or_insert(now + within);
        if idle {
            self.made = Some(now);
            self.making = Some((now, make_canary(counter, self.opened.connection.clone()).boxed()));
        }
    }

    /// Handles the answer of the script, which names the heartbeat key that exists now. Reads the key after its
    /// deadline.
    pub(super) fn made(
        &mut self,
        asked: Instant,
        made: Result<String>,
        releasing: &mut JoinSet<Result<()>>,
    ) -> Result<()> {
        let name = match made {
            Ok(name) => name,
            Err(error) => return self.released(Err(error)),
        };
        if let Some((number, before)) = numbers_of(&name) {
            self.chain.name(CanaryNumbers { number, before }, asked);
        }
        let name = format!("{}:{name}", self.share.canaries.as_deref().unwrap_or_default());
        releasing.spawn(check_canary(name, self.opened.connection.clone()));
        Ok(())
    }

    /// Breaks the chain, and passes on that events are missing.
    pub(super) async fn lose(&mut self, count: u64) {
        self.chain.lose();
        self.supervisor.pass(Event::Lost(count)).await;
    }

    /// Checks a heartbeat. Without attached topics, each one is accepted: it only proves that events arrive.
    async fn link_of(&mut self, tag: u32, numbers: CanaryNumbers) -> CanaryStatus {
        if !self.has_positions() {
            return CanaryStatus::Believed;
        }
        if self.share.has_canaries_of(tag) {
            return self.chain.apply_canary(numbers, Instant::now());
        }
        if !self.supervisor.source.is_of_several() {
            return CanaryStatus::Refused;
        }
        // Other listeners assign other slots to this server, and count its heartbeats there.
        self.chain.lose();
        self.supervisor.pass(Event::Moved).await;
        CanaryStatus::Broken
    }

    pub(super) async fn handle_canary(&mut self, tag: u32, numbers: CanaryNumbers) {
        let was_whole = self.chain.is_whole();
        match self.link_of(tag, numbers).await {
            CanaryStatus::Believed => {
                let CanaryNumbers { number, before } = numbers;
                let canary = Canary { number, before, ..mem::take(&mut self.canary) };
                if self.opened.ordered {
                    self.supervisor.pass(Event::Canary(canary)).await;
                }
                self.events_flow().await;
            }
            CanaryStatus::Broken => {
                if was_whole {
                    self.lose(0).await;
                }
                self.supervisor.pass(Event::CanaryUnverified(numbers.number)).await;
                self.ask_soon();
            }
            CanaryStatus::Refused => self.refused_canary(numbers).await,
        }
    }

    /// Returns whether heartbeats number the events, which needs attached topics and RESP3.
    pub(super) fn has_positions(&self) -> bool {
        self.opened.ordered && !self.supervisor.source.decoder.patterns.is_empty()
    }

    /// Notes that a heartbeat has arrived.
    async fn events_flow(&mut self) {
        self.missing_at = None;
        self.missed = 0;
        self.flowed = Some(boottime::now());
        self.supervisor.is_not_silent();
        self.plan_canary();
        if let Some(made) = self.made.take() {
            meter::canary(&self.server.to_string(), made.elapsed());
        }
        if self.anchor != EventFlow::Holds {
            info!(server = %self.server, "expired events flow");
            self.anchor = EventFlow::Holds;
            self.supervisor.pass(Event::Anchored).await;
            if self.opened.wake_ups == WakeUps::Refused {
                self.supervisor.pass(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
    }

    /// Rejects a heartbeat that is forged, or that follows a change of the server's clock or data. The script's next
    /// answer shows which.
    async fn refused_canary(&mut self, numbers: CanaryNumbers) {
        if !mem::replace(&mut self.rejection_logged, true) {
            let (server, CanaryNumbers { number, before }) = (&self.server, numbers);
            warn!(
                %server, number, before,
                "rejected a heartbeat that cannot be the server's next: does a client publish to the channel of expired \
                 keys, or were the server's clock or data set back?"
            );
        }
        self.supervisor.pass(Event::Refused).await;
        self.ask_soon();
    }

    /// Handles a missing heartbeat. It counts if the server has answered the call (`answered`), outside of a flood.
    pub(super) async fn missed_canary(&mut self, answered: bool) {
        let server = &self.server;
        // In a flood, the heartbeat waits in the queue, or was dropped.
        let flooded = !self.opened.pushed.is_empty() || self.dropped > 0;
        self.missed += usize::from(answered && !flooded);
        match &self.refused {
            _ if self.missed != MISSED || !answered || flooded || self.supervisor.was_silent() => {}
            Some(error) => warn!(
                %server, %error,
                "cannot create the heartbeat key, so expired events are not verified; sweeping every second"
            ),
            None => warn!(
                %server,
                "no expired events: is notify-keyspace-events set to at least Ex? Timers of managed topics fire on time anyway"
            ),
        }
        self.anchor = EventFlow::Lost;
        self.supervisor.pass(Event::Gap(Gap::Silent)).await;
    }

    /// Handles the end of a call. A server error is remembered, as it may pass. READONLY, or an error of the
    /// connection, ends the session.
    pub(super) fn released(&mut self, done: Result<()>) -> Result<()> {
        self.refused = None;
        let Err(error) = done else { return Ok(()) };
        let error = error.at_key(self.share.canaries.as_deref().unwrap_or_default().as_bytes());
        if error.code().is_none_or(|code| code == "READONLY") {
            return Err(error);
        }
        debug!(%error, "heartbeat key refused");
        self.refused = Some(error);
        Ok(())
    }

    /// Reports a gap if the server was silent for too long and may have been replaced since. While the process is
    /// suspended, no timer detects that, so each event checks it.
    pub(super) async fn notice_silence(&mut self) {
        let silent_after = self.canary_every() + SILENT_AFTER;
        let was_silent =
            self.flowed.is_some_and(|at| boottime::now().saturating_duration_since(at) >= silent_after);
        if was_silent && self.supervisor.source.may_be_replaced() && self.anchor == EventFlow::Holds {
            self.anchor = EventFlow::Lost;
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
    }
}

/// The numbers in the name of a heartbeat key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CanaryNumbers {
    pub(super) number: u64,
    /// The number of the previous heartbeat key.
    pub(super) before: u64,
}

/// The result of checking a heartbeat against the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CanaryStatus {
    /// It follows the last accepted heartbeat, or the script has named it.
    Believed,
    /// A heartbeat was missed, or this one is forged. Only a heartbeat that the script names restores the chain.
    Broken,
    /// It cannot be the server's next: its number is too low or too high. The chain stays as it is.
    Refused,
}

/// The state of the heartbeats' numbers, without a clock or a connection.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The last accepted number.
    last: u64,
    /// True if no heartbeat was missed since.
    whole: bool,
    named: Option<NamedCanary>,
}

/// The last heartbeat key that the server's script has named.
#[derive(Clone, Copy, Debug)]
struct NamedCanary {
    numbers: CanaryNumbers,
    /// When the script was called.
    asked: Instant,
    /// Set once it has arrived, since its name is accepted only once.
    arrived: bool,
}

impl Chain {
    /// Notes the heartbeat key that the script has named. The script was called at `asked`.
    pub(super) fn name(&mut self, numbers: CanaryNumbers, asked: Instant) {
        if self.named.is_none_or(|named| named.numbers != numbers) {
            self.named = Some(NamedCanary { numbers, asked, arrived: false });
        }
    }

    /// Notes that a heartbeat may have been missed.
    pub(super) fn lose(&mut self) {
        self.whole = false;
    }

    /// Returns whether no heartbeat was missed since the last accepted one.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Checks a heartbeat that has arrived at `now`, and updates the chain.
    pub(super) fn apply_canary(&mut self, numbers: CanaryNumbers, now: Instant) -> CanaryStatus {
        let Some(named) = &mut self.named else { return CanaryStatus::Broken };
        let is_named = !named.arrived && named.numbers == numbers;
        let set_back = is_named && numbers.number.saturating_add(ms(MAX_CLOCK_LEAD)) < self.last;
        if numbers.number > named.most(now) || numbers.number <= self.last && !set_back {
            return CanaryStatus::Refused;
        }
        named.arrived |= is_named;
        let follows = self.whole && numbers.before == self.last;
        self.whole = follows || is_named;
        if !self.whole {
            return CanaryStatus::Broken;
        }
        self.last = numbers.number;
        CanaryStatus::Believed
    }
}

impl NamedCanary {
    /// Returns the highest number that a heartbeat of the server can have at `now`. A number is the clock's
    /// milliseconds, or the last number plus one, and each key lives for a millisecond.
    fn most(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.asked);
        let drift = (DRIFT + since / 1000).min(MAX_CLOCK_LEAD);
        self.numbers.number.saturating_add(ms(since + drift))
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
