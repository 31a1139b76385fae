//! Keys: they move, open and filter; and after a question and a yes they act upon the chosen line.

use keylapse_console::{EntryState, TopicStanding};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::{App, View};
use super::desk::{Act, Deed, EntryRow, Look, Request, TopicRow};
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
    /// The line behind its prompt, and before the reason why it was refused.
    pub(super) fn shown(&self) -> String {
        let topic = self.pause.as_ref().map(|pause| &pause.act.topic);
        let prompt = topic.map_or_else(|| "/".to_owned(), |topic| format!("why is {topic} to be paused? "));
        let refused = self.refused.as_ref().map_or_else(String::new, |why| format!("  {}", short(why, 300)));
        format!("{prompt}{}_{refused}", short(&self.text, 200))
    }
}

/// An action that makes sense now: its key, its name, and how many timers it concerns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) key: char,
    pub(super) name: &'static str,
    pub(super) act: Act,
    timers: u64,
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
        if let Some(offer) = self.question.take() {
            return self.answer(key.code, offer);
        }
        if self.line.is_some() {
            return self.edit(key.code, control);
        }
        if let Some(from) = self.help {
            self.help = match key.code {
                // No further than to where something is left to read: drawing sees to the end.
                KeyCode::Char('j') | KeyCode::Down => Some((from + 1).min(30)),
                KeyCode::Char('k') | KeyCode::Up => Some(from.saturating_sub(1)),
                _ => None,
            };
            return None;
        }
        if control { None } else { self.command(key.code) }
    }

    /// A key while a question is on the screen: `y` agrees to it, and everything else declines.
    fn answer(&mut self, key: KeyCode, offer: Offer) -> Option<Request> {
        if matches!(key, KeyCode::Char('y' | 'Y')) {
            self.is_acting = true;
            let mut act = offer.act;
            // The letter may be gone: somebody else was quicker.
            if let Deed::Replay(row) | Deed::Drop(row) = &mut act.deed
                && !self.view.shows(row)
            {
                row.letter = None;
            }
            return Some(Request::Act(act));
        }
        self.say("nothing was done", false);
        None
    }

    /// A key while a line is typed in.
    fn edit(&mut self, key: KeyCode, control: bool) -> Option<Request> {
        let line = self.line.as_mut()?;
        line.refused = None;
        match key {
            KeyCode::Esc => self.line = None,
            KeyCode::Enter => return self.entered(),
            KeyCode::Backspace => _ = line.text.pop(),
            KeyCode::Char('u') if control => line.text.clear(),
            KeyCode::Char(c) if !control && !c.is_control() && line.text.chars().count() < LONGEST => {
                line.text.push(c);
            }
            _ => {}
        }
        None
    }

    fn entered(&mut self) -> Option<Request> {
        let mut line = self.line.take()?;
        let text = line.text.trim();
        let refused = match &mut line.pause {
            None => match self.view.set_filter(text) {
                Ok(()) => return Some(self.look()),
                Err(why) => why,
            },
            Some(_) if text.is_empty() => "say why, for whoever finds it paused".to_owned(),
            Some(pause) => {
                pause.act.deed = Deed::Pause(text.to_owned());
                self.question = line.pause;
                return None;
            }
        };
        self.line = Some(Line { refused: Some(refused), ..line });
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
            KeyCode::Char('?') => self.help = Some(0),
            KeyCode::Char('/') if matches!(self.view.look, Look::Topics { .. } | Look::Entries { .. }) => {
                self.line = Some(Line { pause: None, text: self.view.filter().to_owned(), refused: None });
            }
            KeyCode::Char('r') if self.asked.is_none() => return Some(self.look()),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return self.enter(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => return self.back(),
            KeyCode::Char('d') => return self.letters(),
            KeyCode::Char(key @ ('R' | 'D' | 'C' | 'P')) => self.want(key),
            KeyCode::Tab => return self.turn(1),
            KeyCode::BackTab => return self.turn(-1),
            KeyCode::Char(digit @ '1'..='5') => return self.tab(digit as usize - '1' as usize),
            KeyCode::Char('n') => return self.page(true, "this is the last page"),
            KeyCode::Char('p') => return self.page(false, "this is the first page"),
            _ => {}
        }
        None
    }

    /// Opens what is chosen.
    fn enter(&mut self) -> Option<Request> {
        let opened = match &self.view.look {
            Look::Topics { .. } => View::entries(self.view.topic()?, EntryState::Waiting),
            Look::Entries { topic, .. } => {
                View::of(Look::Timer { topic: topic.clone(), key: self.view.entry()?.key.clone() })
            }
            Look::Listeners | Look::Timer { .. } => return None,
        };
        self.open(opened)
    }

    /// The dead letters of what is chosen.
    fn letters(&mut self) -> Option<Request> {
        if !matches!(self.view.look, Look::Topics { .. }) {
            return self.show_state(EntryState::Dead);
        }
        let opened = View::entries(self.view.topic()?, EntryState::Dead);
        self.open(opened)
    }

    /// The next tab, or the one before.
    fn turn(&mut self, by: isize) -> Option<Request> {
        let (tabs, at) = self.view.tab()?;
        self.tab((at + tabs).checked_add_signed(by)? % tabs)
    }

    fn tab(&mut self, tab: usize) -> Option<Request> {
        match (&self.view.look, tab) {
            (Look::Topics { .. }, 1) => self.open(View::of(Look::Listeners)),
            (Look::Listeners, 0) => self.back(),
            _ => self.show_state(*EntryState::ALL.get(tab)?),
        }
    }

    fn show_state(&mut self, state: EntryState) -> Option<Request> {
        self.view.set_state(state).then(|| self.look())
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
                self.line = Some(Line { pause: Some(pause), text: String::new(), refused: None });
            }
            Some(offer) => self.question = Some(offer),
            None => self.say(format!("{key} can do nothing to what is chosen here"), true),
        }
    }

    /// What can be done to what is chosen: nothing where it could not work, or may not.
    pub(super) fn offers(&self) -> Vec<Offer> {
        let view = &self.view;
        let of_entry = view.entry().map(|entry| of_entry(view.title(), entry));
        let all = of_entry.into_iter().flatten().chain(view.topic().and_then(of_topic));
        all.filter(|_| self.setting.write).collect()
    }
}

fn of_topic(topic: &TopicRow) -> Option<Offer> {
    use TopicStanding::{Failing, Fine, HeldBack, Paused, Unserved};
    let (name, deed, timers) = match topic.standing {
        Paused => ("resume", Deed::Resume, topic.held.overdue),
        Fine | Unserved | HeldBack | Failing => ("pause", Deed::Pause(String::new()), topic.held.timers),
        _ => return None,
    };
    Some(Offer { key: 'P', name, act: Act { topic: topic.name.clone(), deed }, timers })
}

fn of_entry(topic: &str, entry: &EntryRow) -> Vec<Offer> {
    const RUN: Kind = ('R', "run now", Deed::RunNow);
    const CANCEL: Kind = ('C', "cancel", Deed::Cancel);
    type Kind = (char, &'static str, fn(EntryRow) -> Deed);
    let kinds: &[Kind] = match entry.state {
        EntryState::Waiting | EntryState::Quarantined => &[RUN, CANCEL],
        EntryState::Running => &[CANCEL],
        EntryState::Dead => &[('R', "replay", Deed::Replay), ('D', "drop", Deed::Drop)],
        _ => &[],
    };
    let offer = |(key, name, deed): &Kind| {
        let act = Act { topic: topic.to_owned(), deed: deed(entry.clone()) };
        Offer { key: *key, name, act, timers: 1 }
    };
    kinds.iter().map(offer).collect()
}

impl Offer {
    /// What will happen, to what, and to how many.
    pub(super) fn question(&self) -> String {
        let topic = short(&self.act.topic, 60);
        let of = format!("{} of {topic}", self.act.key().unwrap_or_default());
        let timers = counted(self.timers, "timer");
        match &self.act.deed {
            Deed::RunNow(_) => format!("Run 1 timer now: {of}?"),
            Deed::Cancel(_) => format!("Cancel 1 timer: {of}? It will not run."),
            Deed::Replay(_) => format!("Replay 1 dead letter: {of}? Its attempts start over."),
            Deed::Drop(_) => format!("Drop 1 dead letter for good: {of}?"),
            Deed::Pause(_) => {
                format!("Pause {topic}? Its {timers} and all that come wait until it is resumed.")
            }
            Deed::Resume => format!("Resume {topic}? What is overdue runs at once: {timers}."),
        }
    }
}
