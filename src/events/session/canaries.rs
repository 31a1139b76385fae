//! The canaries of a session: when the next is made, which are believed, and what their silence says.
//!
//! Anybody may publish one, and a position in the stream is only as good as the number that it begins with. A canary that
//! is heard is hearsay, and what the server's own script answers is not: it names a canary before the server can announce
//! it. So a [`Chain`] begins only at a canary that the script has named to this listener, and no number goes further than
//! the server's clock can have gone since. What a forger can still do is in docs/attach.md.

use std::mem;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::boottime;
use crate::error::Result;
use crate::events::calls::{make_canary, release_canary};
use crate::events::decoder::numbers_of;
use crate::events::event::{Canary, Event, Gap};
use crate::events::open::WakeUps;
use crate::events::session::{Anchor, Session};
use crate::log::{debug, info, warn};
use crate::stats::meter;

/// A canary is due when none was heard for this long; one serves all listeners.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// The same where requests are saved, unless it is not known yet whether events flow.
const FEW_CANARIES_EVERY: Duration = Duration::from_secs(20);
/// Up to this much later, by chance: so that mostly one listener sends it.
const CANARY_JITTER: Duration = Duration::from_millis(100);
/// A canary that is not heard within this is missing.
const CANARY_WITHIN: Duration = Duration::from_millis(400);
/// The first may be late: its script is loaded, and the program is busy with its start.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// A server among several from which no canary came for so much longer has missed one.
const SILENT_AFTER: Duration = Duration::from_millis(CANARY_JITTER.as_millis() as u64 + 500);
/// The server is asked for its own word on canaries again after this long, whoever makes them ...
const ASK_EVERY: Duration = Duration::from_secs(10);
/// ... and after this long where one was heard that cannot be believed.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// So many in a row are worth a line in the log: one may be late, at a busy start above all.
const MISSED: usize = 2;
/// The server's clock and ours may be apart by so much, and by a thousandth of the time since.
const DRIFT: Duration = Duration::from_millis(5);
/// However long that is: whoever is ahead of the script by more than this has seen a clock that was set back.
const AHEAD: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Until it is known whether events flow, and of a subscription that has just gone silent, canaries are not saved.
    pub(super) fn canary_every(&self) -> Duration {
        let is_known = self.anchor == Anchor::Holds || self.missed >= MISSED || self.supervisor.was_silent();
        let few = if is_known { FEW_CANARIES_EVERY } else { CANARY_EVERY };
        self.supervisor.source.rounds.pace(CANARY_EVERY, few)
    }

    /// The next canary is due when none was heard for a while; but nobody goes on for long without the server's word.
    fn plan_canary(&mut self) {
        self.ask_at = None;
        self.next_canary =
            Instant::now() + self.canary_every() + self.supervisor.source.rounds.about(CANARY_JITTER, 0.0);
        if let Some(asked) = self.asked.filter(|_| self.has_positions()) {
            self.next_canary = self.next_canary.min(asked + ASK_EVERY);
        }
    }

    /// The server says what is right, and that mends it.
    pub(super) fn ask_soon(&mut self) {
        let now = Instant::now();
        self.ask_at = Some(self.asked.map_or(now, |asked| now.max(asked + ASK_AGAIN)));
    }

    /// Has the next canary made, unless that is being done.
    pub(super) fn make_canary(&mut self, idle: bool) {
        let now = Instant::now();
        let Some(counter) = self.share.canaries.clone() else {
            // There is nothing to ask a server without slots, and nothing that could be due.
            self.asked = None;
            return self.plan_canary();
        };
        self.asked = Some(now);
        self.plan_canary();
        let within = if self.anchor == Anchor::Never { FIRST_WITHIN } else { CANARY_WITHIN };
        self.missing_at.get_or_insert(now + within);
        if idle {
            self.made = Some(now);
            self.making = Some((now, make_canary(counter, self.opened.connection.clone()).boxed()));
        }
    }

    /// A canary was made, or is alive, and the server itself has said how it is called.
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
            self.chain.name(Numbers { number, before }, asked);
        }
        let name = format!("{}:{name}", self.share.canaries.as_deref().unwrap_or_default());
        releasing.spawn(release_canary(name, self.opened.connection.clone()));
        Ok(())
    }

    /// From here on something is missing.
    pub(super) async fn lose(&mut self, count: u64) {
        self.chain.lose();
        self.supervisor.pass(Event::Lost(count)).await;
    }

    /// Without attached topics it says that events flow, and that is all.
    async fn link_of(&mut self, tag: u32, heard: Numbers) -> Link {
        if !self.has_positions() {
            return Link::Believed;
        }
        if self.share.has_canaries_of(tag) {
            return self.chain.hear(heard, Instant::now());
        }
        if !self.supervisor.source.is_of_several() {
            return Link::Refused;
        }
        // Others think that it has other slots, and count from there.
        self.chain.lose();
        self.supervisor.pass(Event::Moved).await;
        Link::Broken
    }

    pub(super) async fn heard_canary(&mut self, tag: u32, heard: Numbers) {
        let was_whole = self.chain.is_whole();
        match self.link_of(tag, heard).await {
            Link::Believed => {
                let Numbers { number, before } = heard;
                let canary = Canary { number, before, ..mem::take(&mut self.canary) };
                if self.opened.ordered {
                    self.supervisor.pass(Event::Canary(canary)).await;
                }
                self.events_flow().await;
            }
            Link::Broken => {
                if was_whole {
                    self.lose(0).await;
                }
                self.supervisor.pass(Event::Hearsay(heard.number)).await;
                self.ask_soon();
            }
            Link::Refused => self.refused_canary(heard).await,
        }
    }

    /// Whether canaries number what is heard.
    pub(super) fn has_positions(&self) -> bool {
        self.opened.ordered && !self.supervisor.source.decoder.patterns.is_empty()
    }

    /// A canary was heard.
    async fn events_flow(&mut self) {
        self.missing_at = None;
        self.missed = 0;
        self.flowed = Some(boottime::now());
        self.supervisor.is_not_silent();
        self.plan_canary();
        if let Some(made) = self.made.take() {
            meter::canary(&self.server.to_string(), made.elapsed());
        }
        if self.anchor != Anchor::Holds {
            info!(server = %self.server, "expired events flow");
            self.anchor = Anchor::Holds;
            self.supervisor.pass(Event::Anchored).await;
            if self.opened.wake_ups == WakeUps::Refused {
                self.supervisor.pass(Event::Gap(Gap::NoWakeUps)).await;
            }
        }
    }

    /// Forged, or the server's clock or data were set anew: the server knows.
    async fn refused_canary(&mut self, heard: Numbers) {
        if !mem::replace(&mut self.said, true) {
            let (server, Numbers { number, before }) = (&self.server, heard);
            warn!(
                %server, number, before,
                "a canary was heard that cannot be the server's next, and is not believed: who publishes to its \
                 channel of expired keys? Or were its clock or its data set back?"
            );
        }
        self.supervisor.pass(Event::Refused).await;
        self.ask_soon();
    }

    /// What is said of it depends on whether the server has answered the call that made it.
    pub(super) async fn missed_canary(&mut self, answered: bool) {
        let server = &self.server;
        // In a flood the canary is somewhere behind, or was dropped.
        let flooded = !self.opened.pushed.is_empty() || self.dropped > 0;
        self.missed += usize::from(answered && !flooded);
        match &self.refused {
            _ if self.missed != MISSED || !answered || flooded || self.supervisor.was_silent() => {}
            Some(error) => warn!(
                %server, %error,
                "no canary, so nothing tells whether expired events flow; sweeping every second"
            ),
            None => warn!(
                %server,
                "no expired events: is notify-keyspace-events set to at least Ex? Timers fire on time all the same"
            ),
        }
        self.anchor = Anchor::Lost;
        self.supervisor.pass(Event::Gap(Gap::Silent)).await;
    }

    /// A server that answers with an error may still heal; one that is a
    /// replica now, or does not answer, is left.
    pub(super) fn released(&mut self, done: Result<()>) -> Result<()> {
        self.refused = None;
        let Err(error) = done else { return Ok(()) };
        let error = error.at_key(self.share.canaries.as_deref().unwrap_or_default().as_bytes());
        if error.code().is_none_or(|code| code == "READONLY") {
            return Err(error);
        }
        debug!(%error, "canary refused");
        self.refused = Some(error);
        Ok(())
    }

    /// A server that was silent for longer than a canary takes may have been replaced meanwhile, if it can be, though no
    /// clock of this program had a chance to say so.
    pub(super) async fn notice_silence(&mut self) {
        let silent_after = self.canary_every() + SILENT_AFTER;
        let was_silent =
            self.flowed.is_some_and(|at| boottime::now().saturating_duration_since(at) >= silent_after);
        if was_silent && self.supervisor.source.may_be_replaced() && self.anchor == Anchor::Holds {
            self.anchor = Anchor::Lost;
            self.supervisor.pass(Event::Gap(Gap::Silent)).await;
        }
    }
}

/// The numbers in a canary's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) number: u64,
    /// That of the one before.
    pub(super) before: u64,
}

/// What a canary is, to whoever has heard those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing was missed since the last, or it is the first, of which the server itself has told.
    Believed,
    /// One was missed, or this one is forged: only the server's own word ends that.
    Broken,
    /// Not the server's next: its number is too low or too high. It changes nothing.
    Refused,
}

/// What is known of the canaries' numbers. It has no clock and asks no server.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The last that was believed.
    last: u64,
    /// Whether nothing was missed since.
    whole: bool,
    named: Option<Named>,
}

/// The last canary that the server's script has named.
#[derive(Clone, Copy, Debug)]
struct Named {
    numbers: Numbers,
    /// When the script was called.
    asked: Instant,
    /// Whether it was heard: it is believed once.
    heard: bool,
}

impl Chain {
    /// The script, called then, has named this canary.
    pub(super) fn name(&mut self, numbers: Numbers, asked: Instant) {
        if self.named.is_none_or(|named| named.numbers != numbers) {
            self.named = Some(Named { numbers, asked, heard: false });
        }
    }

    /// Something may be missing.
    pub(super) fn lose(&mut self) {
        self.whole = false;
    }

    /// Whether nothing was missed since the last canary that was believed.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// A canary was heard.
    pub(super) fn hear(&mut self, heard: Numbers, now: Instant) -> Link {
        let Some(named) = &mut self.named else { return Link::Broken };
        let is_named = !named.heard && named.numbers == heard;
        let set_back = is_named && heard.number.saturating_add(ms(AHEAD)) < self.last;
        if heard.number > named.most(now) || heard.number <= self.last && !set_back {
            return Link::Refused;
        }
        named.heard |= is_named;
        let follows = self.whole && heard.before == self.last;
        self.whole = follows || is_named;
        if !self.whole {
            return Link::Broken;
        }
        self.last = heard.number;
        Link::Believed
    }
}

impl Named {
    /// No canary of the server's can have a higher number by now: numbers are the clock's milliseconds, or the last
    /// and one, and each canary lives for a millisecond.
    fn most(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.asked);
        let drift = (DRIFT + since / 1000).min(AHEAD);
        self.numbers.number.saturating_add(ms(since + drift))
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
