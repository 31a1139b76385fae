//! The state of the screen. Time, answers and [`keys`](super::keys) change it, and it returns the next request. It makes no
//! request itself.

use std::time::Duration;

use keylapse_console::{Entry, EntryState, Filter};

use super::keys::{InputLine, OfferedAction};
use super::worker::{ScreenAnswer, ScreenData, ScreenQuery, ScreenRequest, ScreenSubject, Start, TopicRow};

/// The pause after a query is at least this many times its duration, as the query itself may load the server.
const SHARE: u32 = 4;

/// Settings that do not change while the program runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    /// The server, without a password.
    pub(super) server: String,
    pub(super) namespace: String,
    /// Actions are allowed.
    pub(super) write: bool,
    /// The interval between two queries.
    pub(super) every: Duration,
}

/// A message that is shown until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusMessage {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// An input line, question or help over the screen, which receives all keys.
#[derive(Debug)]
pub(super) enum Overlay {
    Line(InputLine),
    /// An action that waits for its confirmation.
    Question(OfferedAction),
    /// Help, starting at this line.
    Help(usize),
}

/// The state that is drawn. Times are since the start of the program.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) setting: Setting,
    /// The screen that is shown.
    pub(super) view: ScreenState,
    /// The screens from which it was opened.
    pub(super) behind: Vec<ScreenState>,
    pub(super) over: Option<Overlay>,
    pub(super) notice: Option<StatusMessage>,
    /// Why the last query failed.
    pub(super) error: Option<String>,
    /// The last known time of the server in ms since 1970, and when it was received.
    clock: Option<(u64, Duration)>,
    /// An action is running.
    pub(super) is_acting: bool,
    /// The number of the current query. Answers to earlier ones are dropped.
    ticket: u64,
    /// When the running query was started.
    pub(super) asked: Option<Duration>,
    /// When the next query is due.
    next_look: Duration,
    pub(super) now: Duration,
    pub(super) is_over: bool,
}

impl App {
    pub(super) fn new(setting: Setting) -> Self {
        Self { setting, ..Self::default() }
    }

    /// Sets the time, and returns the query that is due.
    pub(super) fn on_time(&mut self, now: Duration) -> Option<ScreenRequest> {
        self.now = now;
        (self.asked.is_none() && self.next_look <= now).then(|| self.look())
    }

    /// Returns when the time must be set again: for the next query, or for the next second of an age on the screen.
    pub(super) fn wakes(&self) -> Duration {
        let age = self.now.saturating_sub(self.view.seen.or(self.asked).unwrap_or(self.now));
        let second = self.now + Duration::from_secs(1) - Duration::from_nanos(age.subsec_nanos().into());
        if self.asked.is_some() { second } else { second.min(self.next_look) }
    }

    /// Returns the server's time in ms since 1970, if it is known.
    pub(super) fn server_ms(&self) -> Option<u64> {
        let (ms, told) = self.clock?;
        Some(ms.saturating_add(u64::try_from(self.now.saturating_sub(told).as_millis()).ok()?))
    }

    /// Returns a query, which supersedes a running one.
    pub(super) fn look(&mut self) -> ScreenRequest {
        self.ticket += 1;
        self.asked = Some(self.now);
        ScreenRequest::Look { ticket: self.ticket, look: self.view.look.clone() }
    }

    pub(super) fn on_answer(&mut self, now: Duration, answer: ScreenAnswer) -> Option<ScreenRequest> {
        self.now = now;
        match answer {
            ScreenAnswer::Look { ticket, answer } => {
                self.on_data(ticket, answer);
                None
            }
            // The next query shows the effect of the action.
            ScreenAnswer::Act(notice) => {
                (self.is_acting, self.notice) = (false, Some(notice));
                Some(self.look())
            }
        }
    }

    /// Applies the answer to a query, unless another query has superseded it.
    pub(super) fn on_data(&mut self, ticket: u64, answer: Result<ScreenData, String>) {
        if ticket != self.ticket {
            return;
        }
        let (now, asked) = (self.now, self.asked.take());
        self.next_look = now + self.setting.every;
        match answer {
            Ok(data) => {
                let took = asked.map_or(Duration::ZERO, |asked| now.saturating_sub(asked));
                self.next_look = self.next_look.max(now + took * SHARE);
                self.clock = data.now_ms.map(|ms| (ms, now)).or(self.clock);
                self.view.take(data, now);
                self.error = None;
            }
            // The screen keeps the earlier data and shows their age.
            Err(error) => self.error = Some(error),
        }
    }

    pub(super) fn say(&mut self, text: impl Into<String>, is_bad: bool) {
        self.notice = Some(StatusMessage { text: text.into(), is_bad });
    }

    /// Returns to the previous screen. On the first one it removes the filter.
    pub(super) fn back(&mut self) -> Option<ScreenRequest> {
        match self.behind.pop() {
            Some(view) => self.view = view,
            None if self.view.look.filter.is_empty() => return None,
            None => self.view.set_filter("").ok()?,
        }
        Some(self.look())
    }
}

/// One screen: its query, the data, and the selected line.
#[derive(Debug, Default)]
pub(super) struct ScreenState {
    pub(super) look: ScreenQuery,
    /// The answer to the last query.
    pub(super) data: ScreenData,
    /// When the answer arrived, since the start of the program.
    pub(super) seen: Option<Duration>,
    /// The selected line.
    pub(super) at: usize,
    /// The starts of the previous pages.
    pub(super) before: Vec<Start>,
    /// The topic is attached, so it can have tracked keys.
    attached: bool,
}

impl ScreenState {
    pub(super) fn of(of: ScreenSubject, topic: &str) -> Self {
        Self {
            look: ScreenQuery { of, topic: topic.to_owned(), ..ScreenQuery::default() },
            ..Self::default()
        }
    }

    pub(super) fn entries(topic: &TopicRow, of: ScreenSubject) -> Self {
        Self { attached: topic.attached, ..Self::of(of, &topic.name) }
    }

    /// Applies the answer. The selection stays on the same entry.
    fn take(&mut self, data: ScreenData, now: Duration) {
        let chosen = self.name_of(self.at);
        (self.data, self.seen) = (data, Some(now));
        if let (ScreenSubject::Entries(_), Some(topic)) = (&self.look.of, self.data.topics.first()) {
            self.attached = topic.attached;
        }
        let same =
            chosen.and_then(|name| (0..self.len()).find(|at| self.name_of(*at).as_ref() == Some(&name)));
        self.choose(same.unwrap_or(self.at));
    }

    /// Returns a name that identifies a line among all others.
    fn name_of(&self, at: usize) -> Option<Vec<u8>> {
        let ScreenData { topics, listeners, entries, .. } = &self.data;
        match self.look.of {
            ScreenSubject::Topics => topics.get(at).map(|topic| topic.name.clone().into_bytes()),
            ScreenSubject::Listeners => listeners.get(at).map(|report| report.id.clone().into_bytes()),
            ScreenSubject::Entries(state) => entries.get(at).map(|entry| {
                let died = if state == EntryState::Dead { entry.at_ms } else { 0 };
                let id = entry.id.map_or_else(String::new, |id| id.to_string());
                [id.as_bytes(), &died.to_be_bytes(), &entry.key].concat()
            }),
            ScreenSubject::Timer(_) => None,
        }
    }

    /// Selects this line, or the last one.
    pub(super) fn choose(&mut self, at: usize) {
        self.at = at.min(self.len().saturating_sub(1));
    }

    /// Returns the number of lines that can be selected.
    pub(super) fn len(&self) -> usize {
        match self.look.of {
            ScreenSubject::Topics => self.data.topics.len(),
            ScreenSubject::Listeners => self.data.listeners.len(),
            ScreenSubject::Entries(_) => self.data.entries.len(),
            ScreenSubject::Timer(_) => self.data.why.as_ref().map_or(0, |why| why.timeline.len()),
        }
    }

    pub(super) fn topic(&self) -> Option<&TopicRow> {
        self.data.topics.get(if self.look.of == ScreenSubject::Topics { self.at } else { 0 })
    }

    /// Returns the entry that actions concern: the selected one, or that of the whole screen.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match &self.data.why {
            Some(why) => why.timer.as_ref().or(why.dead_letters.first()),
            None => self.data.entries.get(self.at),
        }
    }

    /// Returns whether the last answer has this dead letter.
    pub(super) fn shows(&self, letter: &Entry) -> bool {
        let letters = self.data.why.as_ref().map_or(&self.data.entries, |why| &why.dead_letters);
        letters.contains(letter)
    }

    /// Returns the screens that Tab goes through, with this one. A timer's screen has none.
    pub(super) fn tabs(&self) -> Vec<ScreenSubject> {
        let can_enrol = self.attached || self.look.of == ScreenSubject::Entries(EntryState::Tracked);
        let states = if can_enrol { 5 } else { 4 };
        match self.look.of {
            ScreenSubject::Topics | ScreenSubject::Listeners => {
                vec![ScreenSubject::Topics, ScreenSubject::Listeners]
            }
            ScreenSubject::Entries(_) => {
                EntryState::ALL[..states].iter().copied().map(ScreenSubject::Entries).collect()
            }
            ScreenSubject::Timer(_) => Vec::new(),
        }
    }

    /// Sets the filter, or returns why it is invalid.
    pub(super) fn set_filter(&mut self, text: &str) -> Result<(), String> {
        if let ScreenSubject::Entries(_) = self.look.of {
            Filter::parse(text.split_whitespace()).map_err(|error| error.to_string())?;
        }
        text.clone_into(&mut self.look.filter);
        self.turn(self.look.of.clone());
        Ok(())
    }

    /// Shows the first page of this subject.
    pub(super) fn turn(&mut self, to: ScreenSubject) {
        self.before.clear();
        (self.look.of, self.look.start) = (to, Start::default());
        self.forget();
    }

    /// Shows the next or the previous page. Returns whether there is one.
    pub(super) fn turn_page(&mut self, is_forth: bool) -> bool {
        let start = if is_forth { self.data.next.take() } else { self.before.pop() };
        let Some(start) = start else { return false };
        let left = std::mem::replace(&mut self.look.start, start);
        if is_forth {
            self.before.push(left);
        }
        self.forget();
        true
    }

    /// Drops the data of the previous subject. The state of the topic stays on the screen.
    fn forget(&mut self) {
        (self.at, self.seen) = (0, None);
        let mut topics = std::mem::take(&mut self.data).topics;
        topics.retain(|_| self.look.of != ScreenSubject::Topics);
        self.data.topics = topics;
    }
}
