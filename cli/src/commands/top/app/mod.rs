//! The state of the screen, and what keys and answers make of it. It does nothing by itself: it is told the time, and
//! says what it wants to know.

mod actions;
mod keys;
mod prompt;
mod view;

use std::time::Duration;

pub(super) use self::prompt::{Line, Purpose, Question};
pub(super) use self::view::{Entries, Of, View};
use super::deeds::Done;
use super::model::{Act, Data, Look};

/// A look that has taken long is not repeated before this many times as long: it may be the load that makes it slow.
const SHARE: u32 = 4;

/// What does not change while the program runs.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The server, without any password.
    pub(super) server: String,
    pub(super) namespace: String,
    /// Whether something may be done.
    pub(super) write: bool,
    /// How often is looked.
    pub(super) every: Duration,
}

/// What the loop has to have done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    /// A look, in the place of one that may still be under way.
    Look {
        ticket: u64,
        look: Look,
    },
    Act(Act),
}

/// Something to say, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// All that there is to draw. Times are since the program's start.
#[derive(Debug)]
pub(super) struct App {
    pub(super) setting: Setting,
    first: View,
    /// The screens that were opened out of each other; the last one is shown.
    opened: Vec<View>,
    pub(super) line: Option<Line>,
    pub(super) question: Option<Question>,
    /// Help is shown, from this line on.
    pub(super) help: Option<usize>,
    pub(super) notice: Option<Notice>,
    /// Why the last look has failed.
    pub(super) error: Option<String>,
    /// The server's time when it was told last, in ms since 1970, and when that was.
    clock: Option<(u64, Duration)>,
    /// An act is under way.
    pub(super) is_acting: bool,
    /// Of the look that counts.
    ticket: u64,
    /// Since when it is under way.
    pub(super) asked: Option<Duration>,
    /// When the next one is due.
    next_look: Duration,
    pub(super) now: Duration,
    pub(super) is_over: bool,
}

impl App {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            first: View::topics(),
            opened: Vec::new(),
            line: None,
            question: None,
            help: None,
            notice: None,
            error: None,
            clock: None,
            is_acting: false,
            ticket: 0,
            asked: None,
            next_look: Duration::ZERO,
            now: Duration::ZERO,
            is_over: false,
        }
    }

    /// The screen that is shown.
    pub(super) fn view(&self) -> &View {
        self.opened.last().unwrap_or(&self.first)
    }

    fn view_mut(&mut self) -> &mut View {
        self.opened.last_mut().unwrap_or(&mut self.first)
    }

    /// Is told the time, and says what is due then.
    pub(super) fn on_time(&mut self, now: Duration) -> Option<Request> {
        self.now = now;
        (self.asked.is_none() && self.next_look <= now).then(|| self.look())
    }

    /// When it has to be told the time again: for the next look, and for the next second of an age on the screen.
    pub(super) fn wakes(&self) -> Duration {
        let age = self.now.saturating_sub(self.view().seen.or(self.asked).unwrap_or(self.now));
        let second = self.now + Duration::from_secs(1) - Duration::from_nanos(age.subsec_nanos().into());
        if self.asked.is_some() { second } else { second.min(self.next_look) }
    }

    /// How old what is shown is.
    pub(super) fn age(&self) -> Option<Duration> {
        self.view().seen.map(|seen| self.now.saturating_sub(seen))
    }

    /// The server's time, in ms since 1970, as far as that is known.
    pub(super) fn server_ms(&self) -> Option<u64> {
        let (ms, told) = self.clock?;
        Some(ms.saturating_add(u64::try_from(self.now.saturating_sub(told).as_millis()).ok()?))
    }

    /// Looks at once, whatever is under way.
    fn look(&mut self) -> Request {
        self.ticket += 1;
        self.asked = Some(self.now);
        Request::Look { ticket: self.ticket, look: self.view().look() }
    }

    /// Takes the answer to a look, unless it is to one that does not count any more.
    pub(super) fn on_data(&mut self, ticket: u64, answer: Result<Data, String>) {
        if ticket != self.ticket {
            return;
        }
        let took = self.asked.take().map_or(Duration::ZERO, |asked| self.now.saturating_sub(asked));
        self.next_look = self.now + self.setting.every;
        match answer {
            Ok(data) => {
                let now = self.now;
                self.clock = data.now_ms().map(|ms| (ms, now)).or(self.clock);
                self.next_look = self.next_look.max(now + took * SHARE);
                self.view_mut().take(data, now);
                self.error = None;
            }
            // What is on the screen stays there, with its age.
            Err(error) => self.error = Some(error),
        }
    }

    /// Takes what became of an act, and looks at what is so now.
    pub(super) fn on_done(&mut self, done: Result<Done, String>) -> Request {
        self.is_acting = false;
        self.notice = Some(match done {
            Ok(done) => Notice { text: done.says, is_bad: !done.was_done },
            Err(error) => Notice { text: format!("not done: {error}"), is_bad: true },
        });
        self.look()
    }

    fn open(&mut self, view: View) -> Option<Request> {
        self.opened.push(view);
        Some(self.look())
    }

    /// Back to the screen before; from the first one to all that it can show.
    fn back(&mut self) -> Option<Request> {
        let was_opened = self.opened.pop().is_some();
        if !was_opened && (self.first.filter().is_empty() || self.first.set_filter("").is_err()) {
            return None;
        }
        Some(self.look())
    }

    fn say(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), is_bad: false });
    }
}
