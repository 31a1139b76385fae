//! Handles keys: they move, open and filter. After a confirmation they act on the selected line.

use keylapse_console::{Action, Entry, EntryState, TopicState, text};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::{App, Overlay, ScreenState};
use super::worker::{ConfirmedAction, ConfirmedActionKind, ScreenRequest, ScreenSubject, TopicRow};
use crate::output::{counted, short};

/// Lines that the keys PageUp and PageDown move.
const FAR: usize = 10;
/// The most characters of an input line.
const LONGEST: usize = 200;

/// An input line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputLine {
    /// The pause whose reason is typed; `None` for a filter.
    pub(super) pause: Option<OfferedAction>,
    pub(super) text: String,
    /// Why the line was refused.
    pub(super) refused: Option<String>,
}

impl InputLine {
    fn new(pause: Option<OfferedAction>, text: &str) -> Self {
        Self { pause, text: text.to_owned(), refused: None }
    }

    /// Returns the prompt, the line, and the reason why it was refused.
    pub(super) fn shown(&self) -> String {
        let topic = self.pause.as_ref().map(|pause| &pause.act.topic);
        let prompt = topic.map_or_else(|| "/".to_owned(), |topic| format!("reason to pause {topic}: "));
        let refused = self.refused.as_ref().map_or_else(String::new, |why| format!("  {}", short(why, 300)));
        format!("{prompt}{}_{refused}", short(&self.text, 200))
    }
}

/// An action that is possible now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OfferedAction {
    pub(super) key: char,
    pub(super) name: &'static str,
    /// The question that names the action, its object, and how many there are.
    pub(super) question: String,
    pub(super) act: ConfirmedAction,
}

impl App {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Option<ScreenRequest> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.code == KeyCode::Char('c') && control {
            self.is_over = true;
            return None;
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Esc and another key at the same time are received as Alt and that key.
            let back = self.on_key(KeyCode::Esc.into());
            let key = KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key };
            return self.on_key(key).or(back);
        }
        self.notice = None;
        match self.over.take() {
            Some(Overlay::Question(offer)) => self.answer(key.code, offer),
            Some(Overlay::Line(line)) => self.edit(line, key.code, control),
            Some(Overlay::Help(from)) => {
                self.over = match key.code {
                    // Drawing stops at the end of the list, so a larger number has no effect.
                    KeyCode::Char('j') | KeyCode::Down => Some(Overlay::Help((from + 1).min(30))),
                    KeyCode::Char('k') | KeyCode::Up => Some(Overlay::Help(from.saturating_sub(1))),
                    _ => None,
                };
                None
            }
            None if control => None,
            None => self.command(key.code),
        }
    }

    /// Handles a key while a question is shown: `y` confirms it, and any other key declines.
    fn answer(&mut self, key: KeyCode, offer: OfferedAction) -> Option<ScreenRequest> {
        if matches!(key, KeyCode::Char('y' | 'Y')) {
            self.is_acting = true;
            let mut act = offer.act;
            // Without a dead letter the action reports that it is gone, as another operator was faster.
            if let ConfirmedActionKind::Entry { letter, .. } = &mut act.deed {
                letter.take_if(|letter| !self.view.shows(letter));
            }
            return Some(ScreenRequest::Act(act));
        }
        self.say("nothing was done", false);
        None
    }

    /// Handles a key while a line is typed.
    fn edit(&mut self, mut line: InputLine, key: KeyCode, control: bool) -> Option<ScreenRequest> {
        line.refused = None;
        match key {
            KeyCode::Esc => return None,
            KeyCode::Enter => return self.entered(line),
            KeyCode::Backspace => _ = line.text.pop(),
            KeyCode::Char('u') if control => line.text.clear(),
            KeyCode::Char(c) if !control && !c.is_control() && line.text.chars().count() < LONGEST => {
                line.text.push(c);
            }
            _ => {}
        }
        self.over = Some(Overlay::Line(line));
        None
    }

    fn entered(&mut self, mut line: InputLine) -> Option<ScreenRequest> {
        let text = line.text.trim();
        let refused = match &mut line.pause {
            None => match self.view.set_filter(text) {
                Ok(()) => return Some(self.look()),
                Err(why) => why,
            },
            Some(_) if text.is_empty() => "type a reason, for other operators".to_owned(),
            Some(pause) => {
                pause.act.deed = ConfirmedActionKind::Pause(text.to_owned());
                self.over = line.pause.map(Overlay::Question);
                return None;
            }
        };
        self.over = Some(Overlay::Line(InputLine { refused: Some(refused), ..line }));
        None
    }

    /// Handles a key without an overlay.
    fn command(&mut self, key: KeyCode) -> Option<ScreenRequest> {
        let at = self.view.at;
        match key {
            KeyCode::Char('j') | KeyCode::Down => self.view.choose(at + 1),
            KeyCode::Char('k') | KeyCode::Up => self.view.choose(at.saturating_sub(1)),
            KeyCode::Char('g') | KeyCode::Home => self.view.choose(0),
            KeyCode::Char('G') | KeyCode::End => self.view.choose(usize::MAX),
            KeyCode::Char(' ') | KeyCode::PageDown => self.view.choose(at + FAR),
            KeyCode::PageUp => self.view.choose(at.saturating_sub(FAR)),
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?') => self.over = Some(Overlay::Help(0)),
            KeyCode::Char('/')
                if matches!(self.view.look.of, ScreenSubject::Topics | ScreenSubject::Entries(_)) =>
            {
                self.over = Some(Overlay::Line(InputLine::new(None, &self.view.look.filter)));
            }
            KeyCode::Char('r') if self.asked.is_none() => return Some(self.look()),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return self.enter(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => return self.back(),
            KeyCode::Char('d') => return self.go(ScreenSubject::Entries(EntryState::Dead)),
            KeyCode::Char(key @ ('R' | 'D' | 'C' | 'P')) => self.want(key),
            KeyCode::Tab => return self.turn(true),
            KeyCode::BackTab => return self.turn(false),
            KeyCode::Char(digit @ '1'..='5') => {
                return self.go(self.view.tabs().into_iter().nth(digit as usize - '1' as usize)?);
            }
            KeyCode::Char('n') => return self.page(true, "this is the last page"),
            KeyCode::Char('p') => return self.page(false, "this is the first page"),
            _ => {}
        }
        None
    }

    /// Opens the selected line.
    fn enter(&mut self) -> Option<ScreenRequest> {
        match self.view.look.of {
            ScreenSubject::Topics => self.go(ScreenSubject::Entries(EntryState::Waiting)),
            ScreenSubject::Entries(_) => self.go(ScreenSubject::Timer(self.view.entry()?.key.to_vec())),
            ScreenSubject::Listeners | ScreenSubject::Timer(_) => None,
        }
    }

    /// Shows the next or the previous tab.
    fn turn(&mut self, is_forth: bool) -> Option<ScreenRequest> {
        let mut tabs = self.view.tabs();
        let at = tabs.iter().position(|of| *of == self.view.look.of)?;
        let by = if is_forth { 1 } else { tabs.len() - 1 };
        let at = (at + by) % tabs.len();
        self.go(tabs.swap_remove(at))
    }

    /// Shows a screen that can be reached from this one.
    fn go(&mut self, to: ScreenSubject) -> Option<ScreenRequest> {
        let opened = match (&self.view.look.of, &to) {
            (ScreenSubject::Topics, ScreenSubject::Entries(_)) => {
                ScreenState::entries(self.view.topic()?, to)
            }
            (ScreenSubject::Topics, ScreenSubject::Listeners) => ScreenState::of(to, ""),
            (ScreenSubject::Entries(_), ScreenSubject::Timer(_)) => {
                ScreenState::of(to, &self.view.look.topic)
            }
            (ScreenSubject::Listeners, ScreenSubject::Topics) => return self.back(),
            (from @ ScreenSubject::Entries(_), ScreenSubject::Entries(_)) if *from != to => {
                self.view.turn(to);
                return Some(self.look());
            }
            _ => return None,
        };
        self.behind.push(std::mem::replace(&mut self.view, opened));
        Some(self.look())
    }

    fn page(&mut self, is_forth: bool, none: &str) -> Option<ScreenRequest> {
        if self.view.turn_page(is_forth) {
            return Some(self.look());
        }
        // Until the answer arrives it is unknown whether there is another page.
        if self.view.seen.is_some() {
            self.say(none, false);
        }
        None
    }

    /// Handles a key that changes something: it asks for a confirmation first.
    fn want(&mut self, key: char) {
        if !self.setting.write {
            return self.say("read-only: `keylapse top --write` allows actions", false);
        }
        if self.is_acting {
            return self.say("the confirmed action is still in progress", false);
        }
        match self.offers().into_iter().find(|offer| offer.key == key) {
            Some(pause) if matches!(pause.act.deed, ConfirmedActionKind::Pause(_)) => {
                // A pause needs a reason first.
                self.over = Some(Overlay::Line(InputLine::new(Some(pause), "")));
            }
            Some(offer) => self.over = Some(Overlay::Question(offer)),
            None => self.say(format!("{key} has no effect on the selected line"), true),
        }
    }

    /// Returns the actions that are possible for the selected line; none if actions are not allowed.
    pub(super) fn offers(&self) -> Vec<OfferedAction> {
        let view = &self.view;
        let of_entry = view.entry().map(|entry| of_entry(&view.look.topic, entry));
        let all = of_entry.into_iter().flatten().chain(view.topic().and_then(of_topic));
        all.filter(|_| self.setting.write).collect()
    }
}

fn of_topic(row: &TopicRow) -> Option<OfferedAction> {
    use TopicState::{Failing, Fine, HeldBack, Paused, Unserved};
    let topic = short(&row.name, 60);
    let (name, deed, question) = match row.standing {
        Paused => {
            let timers = counted(row.held.overdue, "overdue timer");
            (
                "resume",
                ConfirmedActionKind::Resume,
                format!("Resume {topic}? This runs {timers} immediately."),
            )
        }
        Fine | Unserved | HeldBack | Failing => {
            let timers = counted(row.held.timers, "timer");
            let question = format!("Pause {topic}? Its {timers} and all new ones wait until it is resumed.");
            ("pause", ConfirmedActionKind::Pause(String::new()), question)
        }
        _ => return None,
    };
    Some(OfferedAction { key: 'P', name, question, act: ConfirmedAction { topic: row.name.clone(), deed } })
}

fn of_entry(topic: &str, entry: &Entry) -> Vec<OfferedAction> {
    let of = format!("{} of {}", short(&text::escape(&entry.key), 60), short(topic, 60));
    let offer = |action: &Action| {
        let (key, name, question) = match action {
            Action::RunNow => ('R', "run now", format!("Run 1 timer now: {of}?")),
            Action::Cancel => ('C', "cancel", format!("Cancel 1 timer: {of}? It will not run.")),
            Action::Replay => {
                ('R', "replay", format!("Replay 1 dead letter: {of}? Its attempts start over."))
            }
            Action::Drop => ('D', "drop", format!("Drop 1 dead letter for good: {of}?")),
            _ => return None,
        };
        let letter = action.is_for_letters().then(|| Box::new(entry.clone()));
        let deed = ConfirmedActionKind::Entry { action: *action, key: entry.key.to_vec(), letter };
        Some(OfferedAction { key, name, question, act: ConfirmedAction { topic: topic.to_owned(), deed } })
    };
    Action::of(entry.state).iter().filter_map(offer).collect()
}
