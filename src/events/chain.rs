//! Which canaries are believed. Anybody may publish one, and a position in the stream is only as good as the number that
//! it begins with.
//!
//! A canary that is heard is hearsay, and what the server's own script answers is not: it names a canary before the
//! server can announce it. So a chain begins only at a canary that the script has named to this listener, and no
//! number goes further than the server's clock can have gone since. What a forger can still do is in docs/attach.md.
//!
//! Pure: no clock, no server.

use std::time::Duration;

use tokio::time::Instant;

/// The server's clock and ours may be apart by so much, and by a thousandth of the time since.
const DRIFT: Duration = Duration::from_millis(5);
/// However long that is: whoever is ahead of the script by more than this has seen a clock that was set back.
const AHEAD: Duration = Duration::from_millis(100);

/// The numbers in a canary's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) number: u64,
    /// That of the one before.
    pub(crate) before: u64,
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

/// What is known of the canaries' numbers.
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
