//! Keys: they move, open and filter; and after a question and a yes they act upon the chosen line.

use keylapse_console::{Action, Entry, EntryState, TopicStanding, text};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::{App, Over, View};
use super::desk::{Act, Deed, Of, Request, TopicRow};
use crate::output::{counted, short};

/// Lines that a whole-page key goes.
const FAR: usize = 10;
/// Characters of what is typed in.
const LONGEST: usize = 200;

/// A line that is typed in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// The pause that the line is the reason of; a filter has none.
    pub(super) pause: Option<Offer>,
    pub(super) text: String,
    /// What was wrong with it.
    pub(super) refused: Option<String>,
}

impl Line {
    fn new(pause: Option<Offer>, text: &str) -> Self {
        Self { pause, text: text.to_owned(), refused: None }
    }

    /// The line behind its prompt, and before the reason why it was refused.
    pub(super) fn shown(&self) -> String {
        let topic = self.pause.as_ref().map(|pause| &pause.act.topic);
        let prompt = topic.map_or_else(|| "/".to_owned(), |topic| format!("why is {topic} to be paused? "));
        let refused = self.refused.as_ref().map_or_else(String::new, |why| format!("  {}", short(why, 300)));
        format!("{prompt}{}_{refused}", short(&self.text, 200))
    }
}

/// An action that makes sense now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) key: char,
    pub(super) name: &'static str,
    /// What will happen, to what, and to how many.
    pub(super) question: String,
    pub(super) act: Act,
}

impl App {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Option<Request> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.code == KeyCode::Char('c') && control {
            self.is_over = true;
            return None;
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Esc and another key that come at once look so.
            let back = self.on_key(KeyCode::Esc.into());
            let key = KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key };
            return self.on_key(key).or(back);
        }
        self.notice = None;
        match self.over.take() {
            Some(Over::Question(offer)) => self.answer(key.code, offer),
            Some(Over::Line(line)) => self.edit(line, key.code, control),
            Some(Over::Help(from)) => {
                self.over = match key.code {
                    // No further than to where something is left to read: drawing sees to the end.
                    KeyCode::Char('j') | KeyCode::Down => Some(Over::Help((from + 1).min(30))),
                    KeyCode::Char('k') | KeyCode::Up => Some(Over::Help(from.saturating_sub(1))),
                    _ => None,
                };
                None
            }
            None if control => None,
            None => self.command(key.code),
        }
    }

    /// A key while a question is on the screen: `y` agrees to it, and everything else declines.
    fn answer(&mut self, key: KeyCode, offer: Offer) -> Option<Request> {
        if matches!(key, KeyCode::Char('y' | 'Y')) {
            self.is_acting = true;
            let mut act = offer.act;
            // The letter may be gone: somebody else was quicker.
            if let Deed::Entry { letter, .. } = &mut act.deed {
                letter.take_if(|letter| !self.view.shows(letter));
            }
            return Some(Request::Act(act));
        }
        self.say("nothing was done", false);
        None
    }

    /// A key while a line is typed in.
    fn edit(&mut self, mut line: Line, key: KeyCode, control: bool) -> Option<Request> {
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
        self.over = Some(Over::Line(line));
        None
    }

    fn entered(&mut self, mut line: Line) -> Option<Request> {
        let text = line.text.trim();
        let refused = match &mut line.pause {
            None => match self.view.set_filter(text) {
                Ok(()) => return Some(self.look()),
                Err(why) => why,
            },
            Some(_) if text.is_empty() => "say why, for whoever finds it paused".to_owned(),
            Some(pause) => {
                pause.act.deed = Deed::Pause(text.to_owned());
                self.over = line.pause.map(Over::Question);
                return None;
            }
        };
        self.over = Some(Over::Line(Line { refused: Some(refused), ..line }));
        None
    }

    /// Any other key.
    fn command(&mut self, key: KeyCode) -> Option<Request> {
        let at = self.view.at;
        match key {
            KeyCode::Char('j') | KeyCode::Down => self.view.choose(at + 1),
            KeyCode::Char('k') | KeyCode::Up => self.view.choose(at.saturating_sub(1)),
            KeyCode::Char('g') | KeyCode::Home => self.view.choose(0),
            KeyCode::Char('G') | KeyCode::End => self.view.choose(usize::MAX),
            KeyCode::Char(' ') | KeyCode::PageDown => self.view.choose(at + FAR),
            KeyCode::PageUp => self.view.choose(at.saturating_sub(FAR)),
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?') => self.over = Some(Over::Help(0)),
            KeyCode::Char('/') if matches!(self.view.look.of, Of::Topics | Of::Entries(_)) => {
                self.over = Some(Over::Line(Line::new(None, &self.view.look.filter)));
            }
            KeyCode::Char('r') if self.asked.is_none() => return Some(self.look()),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return self.enter(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => return self.back(),
            KeyCode::Char('d') => return self.go(Of::Entries(EntryState::Dead)),
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

    /// Opens what is chosen.
    fn enter(&mut self) -> Option<Request> {
        match self.view.look.of {
            Of::Topics => self.go(Of::Entries(EntryState::Waiting)),
            Of::Entries(_) => self.go(Of::Timer(self.view.entry()?.key.to_vec())),
            Of::Listeners | Of::Timer(_) => None,
        }
    }

    /// The next tab, or the one before.
    fn turn(&mut self, is_forth: bool) -> Option<Request> {
        let mut tabs = self.view.tabs();
        let at = tabs.iter().position(|of| *of == self.view.look.of)?;
        let by = if is_forth { 1 } else { tabs.len() - 1 };
        let at = (at + by) % tabs.len();
        self.go(tabs.swap_remove(at))
    }

    /// Goes to a screen that can be reached from this one.
    fn go(&mut self, to: Of) -> Option<Request> {
        let opened = match (&self.view.look.of, &to) {
            (Of::Topics, Of::Entries(_)) => View::entries(self.view.topic()?, to),
            (Of::Topics, Of::Listeners) => View::of(to, ""),
            (Of::Entries(_), Of::Timer(_)) => View::of(to, &self.view.look.topic),
            (Of::Listeners, Of::Topics) => return self.back(),
            (from @ Of::Entries(_), Of::Entries(_)) if *from != to => {
                self.view.turn(to);
                return Some(self.look());
            }
            _ => return None,
        };
        self.behind.push(std::mem::replace(&mut self.view, opened));
        Some(self.look())
    }

    fn page(&mut self, is_forth: bool, none: &str) -> Option<Request> {
        if self.view.turn_page(is_forth) {
            return Some(self.look());
        }
        // Before the answer nobody knows.
        if self.view.seen.is_some() {
            self.say(none, false);
        }
        None
    }

    /// A dangerous key: asks before anything is done.
    fn want(&mut self, key: char) {
        if !self.setting.write {
            return self.say("this is read-only: `keylapse top --write` can act", false);
        }
        if self.is_acting {
            return self.say("what was agreed to is still being done", false);
        }
        match self.offers().into_iter().find(|offer| offer.key == key) {
            Some(pause) if matches!(pause.act.deed, Deed::Pause(_)) => {
                // It asks for a reason first.
                self.over = Some(Over::Line(Line::new(Some(pause), "")));
            }
            Some(offer) => self.over = Some(Over::Question(offer)),
            None => self.say(format!("{key} can do nothing to what is chosen here"), true),
        }
    }

    /// What can be done to what is chosen: nothing where it could not work, or may not.
    pub(super) fn offers(&self) -> Vec<Offer> {
        let view = &self.view;
        let of_entry = view.entry().map(|entry| of_entry(&view.look.topic, entry));
        let all = of_entry.into_iter().flatten().chain(view.topic().and_then(of_topic));
        all.filter(|_| self.setting.write).collect()
    }
}

fn of_topic(row: &TopicRow) -> Option<Offer> {
    use TopicStanding::{Failing, Fine, HeldBack, Paused, Unserved};
    let topic = short(&row.name, 60);
    let (name, deed, question) = match row.standing {
        Paused => {
            let timers = counted(row.held.overdue, "timer");
            ("resume", Deed::Resume, format!("Resume {topic}? What is overdue runs at once: {timers}."))
        }
        Fine | Unserved | HeldBack | Failing => {
            let timers = counted(row.held.timers, "timer");
            let question = format!("Pause {topic}? Its {timers} and all that come wait until it is resumed.");
            ("pause", Deed::Pause(String::new()), question)
        }
        _ => return None,
    };
    Some(Offer { key: 'P', name, question, act: Act { topic: row.name.clone(), deed } })
}

fn of_entry(topic: &str, entry: &Entry) -> Vec<Offer> {
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
        let deed = Deed::Entry { action: *action, key: entry.key.to_vec(), letter };
        Some(Offer { key, name, question, act: Act { topic: topic.to_owned(), deed } })
    };
    Action::of(entry.state).iter().filter_map(offer).collect()
}
