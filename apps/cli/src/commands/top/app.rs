//! The state of the screen. Time, answers and [`keys`](super::keys) change it, and it returns the next request; it does
//! nothing by itself.

use std::time::Duration;

use keylapse_console::{Entry, EntryState, Filter};

use super::desk::{Answer, Data, Look, Of, Request, Start, TopicRow};
use super::keys::{Line, Offer};

/// A look that has taken long is not repeated before this many times as long: it may be the load that makes it slow.
const SHARE: u32 = 4;

/// What does not change while the program runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    /// The server, without any password.
    pub(super) server: String,
    pub(super) namespace: String,
    /// Whether something may be done.
    pub(super) write: bool,
    /// How often is looked.
    pub(super) every: Duration,
}

/// Something to say, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// Stands over the screen, and takes all keys.
#[derive(Debug)]
pub(super) enum Over {
    Line(Line),
    /// An action that waits for a yes.
    Question(Offer),
    /// Help, from this line on.
    Help(usize),
}

/// All that there is to draw. Times are since the program's start.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) setting: Setting,
    /// The screen that is shown.
    pub(super) view: View,
    /// The screens that it was opened from.
    pub(super) behind: Vec<View>,
    pub(super) over: Option<Over>,
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
        Self { setting, ..Self::default() }
    }

    /// Is told the time, and says what is due then.
    pub(super) fn on_time(&mut self, now: Duration) -> Option<Request> {
        self.now = now;
        (self.asked.is_none() && self.next_look <= now).then(|| self.look())
    }

    /// When it has to be told the time again: for the next look, and for the next second of an age on the screen.
    pub(super) fn wakes(&self) -> Duration {
        let age = self.now.saturating_sub(self.view.seen.or(self.asked).unwrap_or(self.now));
        let second = self.now + Duration::from_secs(1) - Duration::from_nanos(age.subsec_nanos().into());
        if self.asked.is_some() { second } else { second.min(self.next_look) }
    }

    /// The server's time, in ms since 1970, as far as that is known.
    pub(super) fn server_ms(&self) -> Option<u64> {
        let (ms, told) = self.clock?;
        Some(ms.saturating_add(u64::try_from(self.now.saturating_sub(told).as_millis()).ok()?))
    }

    /// Looks at once, whatever is under way.
    pub(super) fn look(&mut self) -> Request {
        self.ticket += 1;
        self.asked = Some(self.now);
        Request::Look { ticket: self.ticket, look: self.view.look.clone() }
    }

    pub(super) fn on_answer(&mut self, now: Duration, answer: Answer) -> Option<Request> {
        self.now = now;
        match answer {
            Answer::Look { ticket, answer } => {
                self.on_data(ticket, answer);
                None
            }
            // What is so now is on the next look.
            Answer::Act(notice) => {
                (self.is_acting, self.notice) = (false, Some(notice));
                Some(self.look())
            }
        }
    }

    /// Takes the answer to a look, unless it is to one that does not count any more.
    pub(super) fn on_data(&mut self, ticket: u64, answer: Result<Data, String>) {
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
            // What is on the screen stays there, with its age.
            Err(error) => self.error = Some(error),
        }
    }

    pub(super) fn say(&mut self, text: impl Into<String>, is_bad: bool) {
        self.notice = Some(Notice { text: text.into(), is_bad });
    }

    /// Back to the screen before; from the first one to all that it can show.
    pub(super) fn back(&mut self) -> Option<Request> {
        match self.behind.pop() {
            Some(view) => self.view = view,
            None if self.view.look.filter.is_empty() => return None,
            None => self.view.set_filter("").ok()?,
        }
        Some(self.look())
    }
}

/// One screen: what it is of, what is known of that, and which line is chosen.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) look: Look,
    /// The answer to the last look.
    pub(super) data: Data,
    /// When it arrived, since the start.
    pub(super) seen: Option<Duration>,
    /// The chosen line.
    pub(super) at: usize,
    /// Where the pages before this one began.
    pub(super) before: Vec<Start>,
    /// An attached topic can have enrolled keys.
    attached: bool,
}

impl View {
    pub(super) fn of(of: Of, topic: &str) -> Self {
        Self { look: Look { of, topic: topic.to_owned(), ..Look::default() }, ..Self::default() }
    }

    pub(super) fn entries(topic: &TopicRow, of: Of) -> Self {
        Self { attached: topic.attached, ..Self::of(of, &topic.name) }
    }

    /// Takes what was found out. The chosen line stays with what it shows.
    fn take(&mut self, data: Data, now: Duration) {
        let chosen = self.name_of(self.at);
        (self.data, self.seen) = (data, Some(now));
        if let (Of::Entries(_), Some(topic)) = (&self.look.of, self.data.topics.first()) {
            self.attached = topic.attached;
        }
        let same =
            chosen.and_then(|name| (0..self.len()).find(|at| self.name_of(*at).as_ref() == Some(&name)));
        self.choose(same.unwrap_or(self.at));
    }

    /// What tells a line from all others.
    fn name_of(&self, at: usize) -> Option<Vec<u8>> {
        let Data { topics, listeners, entries, .. } = &self.data;
        match self.look.of {
            Of::Topics => topics.get(at).map(|topic| topic.name.clone().into_bytes()),
            Of::Listeners => listeners.get(at).map(|report| report.id.clone().into_bytes()),
            Of::Entries(state) => entries.get(at).map(|entry| {
                let died = if state == EntryState::Dead { entry.at_ms } else { 0 };
                let id = entry.id.map_or_else(String::new, |id| id.to_string());
                [id.as_bytes(), &died.to_be_bytes(), &entry.key].concat()
            }),
            Of::Timer(_) => None,
        }
    }

    /// Chooses this line, or the last.
    pub(super) fn choose(&mut self, at: usize) {
        self.at = at.min(self.len().saturating_sub(1));
    }

    /// Lines that can be chosen.
    pub(super) fn len(&self) -> usize {
        match self.look.of {
            Of::Topics => self.data.topics.len(),
            Of::Listeners => self.data.listeners.len(),
            Of::Entries(_) => self.data.entries.len(),
            Of::Timer(_) => self.data.why.as_ref().map_or(0, |why| why.timeline.len()),
        }
    }

    pub(super) fn topic(&self) -> Option<&TopicRow> {
        self.data.topics.get(if self.look.of == Of::Topics { self.at } else { 0 })
    }

    /// The entry that actions concern: the chosen one, or the one that the whole screen is about.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match &self.data.why {
            Some(why) => why.timer.as_ref().or(why.letters.first()),
            None => self.data.entries.get(self.at),
        }
    }

    /// Returns whether the last look has found this letter.
    pub(super) fn shows(&self, letter: &Entry) -> bool {
        let letters = self.data.why.as_ref().map_or(&self.data.entries, |why| &why.letters);
        letters.contains(letter)
    }

    /// The screens that Tab goes through, this one among them; none from a timer.
    pub(super) fn tabs(&self) -> Vec<Of> {
        let can_enrol = self.attached || self.look.of == Of::Entries(EntryState::Enrolled);
        let states = if can_enrol { 5 } else { 4 };
        match self.look.of {
            Of::Topics | Of::Listeners => vec![Of::Topics, Of::Listeners],
            Of::Entries(_) => EntryState::ALL[..states].iter().copied().map(Of::Entries).collect(),
            Of::Timer(_) => Vec::new(),
        }
    }

    /// Shows what passes this filter; or says what is wrong with it.
    pub(super) fn set_filter(&mut self, text: &str) -> Result<(), String> {
        if let Of::Entries(_) = self.look.of {
            Filter::parse(text.split_whitespace()).map_err(|error| error.to_string())?;
        }
        text.clone_into(&mut self.look.filter);
        self.turn(self.look.of.clone());
        Ok(())
    }

    /// Shows the first page of this.
    pub(super) fn turn(&mut self, to: Of) {
        self.before.clear();
        (self.look.of, self.look.start) = (to, Start::default());
        self.forget();
    }

    /// Shows the page behind this one, or the one before; whether there is one.
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

    /// What was shown is of something else now. How the topic is stays on the screen.
    fn forget(&mut self) {
        (self.at, self.seen) = (0, None);
        let mut topics = std::mem::take(&mut self.data).topics;
        topics.retain(|_| self.look.of != Of::Topics);
        self.data.topics = topics;
    }
}
