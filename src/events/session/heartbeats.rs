//! The heartbeats of a session (`canary` in the code): when the next key is created, which heartbeats are accepted, and
//! how missing ones are handled.
//!
//! A script on the server creates the heartbeat key and returns its name. The numbers in its name are those of this
//! heartbeat and of the previous one, so heartbeats form a [`Chain`].
//!
//! Any client can publish a forged heartbeat, and positions in the stream count from its number. The script's answer
//! cannot be forged, and it names a key before the server announces it. So a chain starts only at a heartbeat that the
//! script has named to this listener. No later number may be higher than the server's clock can be by then.
//! SECURITY.md describes what a forger can still do.

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

/// A heartbeat key is due when no heartbeat arrived for this long. Each heartbeat serves all listeners.
const CANARY_INTERVAL: Duration = Duration::from_secs(1);
/// The interval with `save_requests`, once it is known whether events arrive.
const SAVING_CANARY_INTERVAL: Duration = Duration::from_secs(20);
/// The maximum random delay of a heartbeat key, so that mostly one listener creates it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A heartbeat counts as missing if it does not arrive within this time after its key was due.
const CANARY_TIMEOUT: Duration = Duration::from_millis(400);
/// The timeout of a session's first heartbeat. It is longer, as the script is loaded and the program starts.
const FIRST_CANARY_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that may be replaced counts as silent this long after the next heartbeat was due.
const SILENCE_MARGIN: Duration = Duration::from_millis(CANARY_JITTER.as_millis() as u64 + 500);
/// The longest time between calls of the script. They verify the numbers while other listeners create the keys.
const SCRIPT_INTERVAL: Duration = Duration::from_secs(10);
/// The shortest time between calls of the script after heartbeats that were not accepted.
const MIN_SCRIPT_INTERVAL: Duration = Duration::from_millis(50);
/// A warning is logged when this number of heartbeats in a row is missing. A single one may only be late, above all at
/// a busy start.
const MISSED_TO_LOG: usize = 2;
/// The allowed drift between the server's clock and ours. A thousandth of the time since the script's call is added.
const BASE_CLOCK_DRIFT: Duration = Duration::from_millis(5);
/// The maximum of that drift. If the last number exceeds the script's by more, the server's clock was set back.
const MAX_CLOCK_DRIFT: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Returns the interval of heartbeats. `save_requests` lengthens it once events are known to arrive, or known not
    /// to.
    pub(super) fn canary_interval(&self) -> Duration {
        let is_known = self.flow == EventFlow::Flowing
            || self.missed_canaries >= MISSED_TO_LOG
            || self.supervisor.was_silent();
        let saving = if is_known { SAVING_CANARY_INTERVAL } else { CANARY_INTERVAL };
        self.supervisor.source.rounds.pace(CANARY_INTERVAL, saving)
    }

    /// Plans the next call of the script: when the next heartbeat key is due. If heartbeats number the events, it is at
    /// most `SCRIPT_INTERVAL` after the last call.
    fn plan_canary(&mut self) {
        self.call_script_at = None;
        self.next_canary_at =
            Instant::now() + self.canary_interval() + self.supervisor.source.rounds.about(CANARY_JITTER, 0.0);
        if let Some(asked) = self.script_called_at.filter(|_| self.has_positions()) {
            self.next_canary_at = self.next_canary_at.min(asked + SCRIPT_INTERVAL);
        }
    }

    /// Plans a call of the script soon. Its answer names a heartbeat that restores the chain.
    pub(super) fn call_script_soon(&mut self) {
        let now = Instant::now();
        self.call_script_at =
            Some(self.script_called_at.map_or(now, |asked| now.max(asked + MIN_SCRIPT_INTERVAL)));
    }

    /// Calls the script, which creates a heartbeat key. Does not call it while another call is pending (not `idle`), but
    /// in both cases expects a heartbeat within the timeout.
    pub(super) fn request_canary(&mut self, idle: bool) {
        let now = Instant::now();
        let Some(counter) = self.assignment.canaries.clone() else {
            // A server without slots would refuse the key, so no heartbeat can be due.
            self.script_called_at = None;
            return self.plan_canary();
        };
        self.script_called_at = Some(now);
        self.plan_canary();
        let within = if self.flow == EventFlow::Unknown { FIRST_CANARY_TIMEOUT } else { CANARY_TIMEOUT };
        self.missing_at.get_or_insert(now + within);
        if idle {
            self.canary_requested_at = Some(now);
            self.canary_call = Some((now, make_canary(counter, self.opened.connection.clone()).boxed()));
        }
    }

    /// Handles the answer of the script, which names the heartbeat key that exists now. Reads the key after its
    /// deadline, so that the server announces its expiry.
    pub(super) fn on_canary_made(
        &mut self,
        called_at: Instant,
        made: Result<String>,
        canary_reads: &mut JoinSet<Result<()>>,
    ) -> Result<()> {
        let name = match made {
            Ok(name) => name,
            Err(error) => return self.on_canary_call_ended(Err(error)),
        };
        if let Some((number, before)) = numbers_of(&name) {
            self.chain.set_named(CanaryNumbers { number, before }, called_at);
        }
        let name = format!("{}:{name}", self.assignment.canaries.as_deref().unwrap_or_default());
        canary_reads.spawn(check_canary(name, self.opened.connection.clone()));
        Ok(())
    }

    /// Breaks the chain, and reports that events are missing. `count` of them were dropped from the full queue.
    pub(super) async fn break_chain(&mut self, count: u64) {
        self.chain.mark_broken();
        self.supervisor.send_event(Event::Lost(count)).await;
    }

    /// Decides whether a heartbeat is accepted. Without positions each one is: it only proves that events arrive.
    async fn status_of(&mut self, tag: u32, numbers: CanaryNumbers) -> CanaryStatus {
        if !self.has_positions() {
            return CanaryStatus::Accepted;
        }
        if self.assignment.has_canaries_of(tag) {
            return self.chain.apply_canary(numbers, Instant::now());
        }
        if !self.supervisor.source.is_of_several() {
            return CanaryStatus::Refused;
        }
        // Other listeners assign other slots to this server, and count its heartbeats there.
        self.chain.mark_broken();
        self.supervisor.send_event(Event::Moved).await;
        CanaryStatus::Broken
    }

    /// Handles a heartbeat that has arrived, which may be forged.
    pub(super) async fn on_canary(&mut self, tag: u32, numbers: CanaryNumbers) {
        let was_unbroken = self.chain.is_unbroken();
        match self.status_of(tag, numbers).await {
            CanaryStatus::Accepted => {
                let CanaryNumbers { number, before } = numbers;
                let canary = Canary { number, before, ..mem::take(&mut self.canary_flags) };
                if self.opened.ordered {
                    self.supervisor.send_event(Event::Canary(canary)).await;
                }
                self.on_canary_accepted().await;
            }
            CanaryStatus::Broken => {
                if was_unbroken {
                    self.break_chain(0).await;
                }
                self.supervisor.send_event(Event::CanaryUnverified(numbers.number)).await;
                self.call_script_soon();
            }
            CanaryStatus::Refused => self.on_canary_refused(numbers).await,
        }
    }

    /// Returns whether heartbeats number the events, which needs attached topics and RESP3.
    pub(super) fn has_positions(&self) -> bool {
        self.opened.ordered && !self.supervisor.source.decoder.patterns.is_empty()
    }

    /// Handles an accepted heartbeat: events arrive.
    async fn on_canary_accepted(&mut self) {
        self.missing_at = None;
        self.missed_canaries = 0;
        self.last_canary_at = Some(boottime::now());
        self.supervisor.reset_silence();
        self.plan_canary();
        if let Some(made) = self.canary_requested_at.take() {
            meter::canary(&self.server.to_string(), made.elapsed());
        }
        if self.flow != EventFlow::Flowing {
            info!(server = %self.server, "expired events flow");
            self.flow = EventFlow::Flowing;
            self.supervisor.send_event(Event::Anchored).await;
            if self.opened.wake_ups == WakeUps::Refused {
                self.supervisor.send_event(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
    }

    /// Handles a refused heartbeat: it is forged, or follows a change of the server's clock or data. The script's next
    /// answer shows which.
    async fn on_canary_refused(&mut self, numbers: CanaryNumbers) {
        if !mem::replace(&mut self.rejection_logged, true) {
            let (server, CanaryNumbers { number, before }) = (&self.server, numbers);
            warn!(
                %server, number, before,
                "rejected a heartbeat that cannot be the server's next: does a client publish to the channel of expired \
                 keys, or were the server's clock or data set back?"
            );
        }
        self.supervisor.send_event(Event::CanaryRefused).await;
        self.call_script_soon();
    }

    /// Handles a missing heartbeat. It counts only if the server has answered all calls (`answered`), and outside of a
    /// flood.
    pub(super) async fn on_canary_missed(&mut self, answered: bool) {
        let server = &self.server;
        // In a flood, the heartbeat waits in the queue, or was dropped.
        let flooded = !self.opened.pushed.is_empty() || self.unreported_drops > 0;
        self.missed_canaries += usize::from(answered && !flooded);
        match &self.canary_refusal {
            _ if self.missed_canaries != MISSED_TO_LOG
                || !answered
                || flooded
                || self.supervisor.was_silent() => {}
            Some(error) => warn!(
                %server, %error,
                "cannot create the heartbeat key, so expired events are not verified; sweeping every second"
            ),
            None => warn!(
                %server,
                "no expired events: is notify-keyspace-events set to at least Ex? Timers of managed topics fire on time anyway"
            ),
        }
        self.flow = EventFlow::Interrupted;
        self.supervisor.send_event(Event::Gap(Gap::Silent)).await;
    }

    /// Handles the end of a call that creates or reads a heartbeat key. READONLY and errors of the connection end the
    /// session. Any other error of the server may pass, and is kept as `canary_refusal`.
    pub(super) fn on_canary_call_ended(&mut self, done: Result<()>) -> Result<()> {
        self.canary_refusal = None;
        let Err(error) = done else { return Ok(()) };
        let error = error.at_key(self.assignment.canaries.as_deref().unwrap_or_default().as_bytes());
        if error.code().is_none_or(|code| code == "READONLY") {
            return Err(error);
        }
        debug!(%error, "heartbeat key refused");
        self.canary_refusal = Some(error);
        Ok(())
    }

    /// Reports a gap if the server was silent for too long and may have been replaced since. While the process is
    /// suspended, no timer detects that, so each event checks it.
    pub(super) async fn check_silence(&mut self) {
        let silent_after = self.canary_interval() + SILENCE_MARGIN;
        let was_silent = self
            .last_canary_at
            .is_some_and(|at| boottime::now().saturating_duration_since(at) >= silent_after);
        if was_silent && self.supervisor.source.may_be_replaced() && self.flow == EventFlow::Flowing {
            self.flow = EventFlow::Interrupted;
            self.supervisor.send_event(Event::Gap(Gap::Silent)).await;
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
    /// It follows the last accepted heartbeat, or the script has named it. It is the last of the chain now.
    Accepted,
    /// The chain is broken: a heartbeat was missed, or this one is forged. Only a heartbeat that the script names
    /// restores it.
    Broken,
    /// It cannot be the server's next: its number is too low or too high. The chain is unchanged.
    Refused,
}

/// Follows the numbers of heartbeats, each of which names the previous one. Uses no clock and no connection.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The number of the last accepted heartbeat.
    last: u64,
    /// True if no heartbeat was missed since that one.
    unbroken: bool,
    named: Option<NamedCanary>,
}

/// The last heartbeat key that the server's script has named.
#[derive(Clone, Copy, Debug)]
struct NamedCanary {
    numbers: CanaryNumbers,
    /// When the script was called.
    script_called_at: Instant,
    /// Set once it has arrived, since its name is accepted only once.
    arrived: bool,
}

impl Chain {
    /// Sets the heartbeat key that the script has named. Does nothing if it is the present one.
    pub(super) fn set_named(&mut self, numbers: CanaryNumbers, script_called_at: Instant) {
        if self.named.is_none_or(|named| named.numbers != numbers) {
            self.named = Some(NamedCanary { numbers, script_called_at, arrived: false });
        }
    }

    /// Marks the chain as broken: a heartbeat may have been missed.
    pub(super) fn mark_broken(&mut self) {
        self.unbroken = false;
    }

    /// Returns whether no heartbeat was missed since the last accepted one.
    pub(super) fn is_unbroken(&self) -> bool {
        self.unbroken
    }

    /// Checks a heartbeat that has arrived at `now`, and updates the chain.
    pub(super) fn apply_canary(&mut self, numbers: CanaryNumbers, now: Instant) -> CanaryStatus {
        let Some(named) = &mut self.named else { return CanaryStatus::Broken };
        let is_named = !named.arrived && named.numbers == numbers;
        let set_back = is_named && numbers.number.saturating_add(ms(MAX_CLOCK_DRIFT)) < self.last;
        if numbers.number > named.max_number(now) || numbers.number <= self.last && !set_back {
            return CanaryStatus::Refused;
        }
        named.arrived |= is_named;
        let follows = self.unbroken && numbers.before == self.last;
        self.unbroken = follows || is_named;
        if !self.unbroken {
            return CanaryStatus::Broken;
        }
        self.last = numbers.number;
        CanaryStatus::Accepted
    }
}

impl NamedCanary {
    /// Returns the highest number that a heartbeat of the server can have at `now`. A number is the clock's
    /// milliseconds, or the last number plus one, and each key lives for a millisecond.
    fn max_number(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.script_called_at);
        let drift = (BASE_CLOCK_DRIFT + since / 1000).min(MAX_CLOCK_DRIFT);
        self.numbers.number.saturating_add(ms(since + drift))
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
