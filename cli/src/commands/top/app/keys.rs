//! What keys do.

use keylapse_console::EntryState;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{App, Line, Of, Purpose, Request, View};

/// Lines that a whole-page key goes.
const FAR: usize = 10;

impl App {
    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Option<Request> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
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
        if self.question.is_some() {
            return self.answer(key);
        }
        if self.line.is_some() {
            return self.edit(key);
        }
        if self.help.is_some() {
            self.in_help(key);
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return None;
        }
        self.move_by(key.code).or_else(|| self.command(key.code))
    }

    /// Keys that change what is looked at, and all others.
    fn command(&mut self, key: KeyCode) -> Option<Request> {
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?') => self.help = Some(0),
            KeyCode::Char('/') if !matches!(self.view().of, Of::Timer { .. } | Of::Listeners { .. }) => {
                self.line = Some(Line::new(Purpose::Filter, self.view().filter()));
            }
            KeyCode::Char('r') if self.asked.is_none() => return Some(self.look()),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return self.enter(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => return self.back(),
            KeyCode::Char('d') => return self.letters(),
            KeyCode::Char(key @ ('R' | 'D' | 'C' | 'P')) => self.want(key),
            KeyCode::Tab => return self.turn(1),
            KeyCode::BackTab => return self.turn(-1),
            KeyCode::Char(digit @ '1'..='5') => return self.tab(digit as usize - '1' as usize),
            KeyCode::Char('n') => return self.page(View::next_page, "this is the last page"),
            KeyCode::Char('p') => return self.page(View::previous_page, "this is the first page"),
            _ => {}
        }
        None
    }

    /// Keys that choose another line.
    fn move_by(&mut self, key: KeyCode) -> Option<Request> {
        let view = self.view_mut();
        let last = view.len().saturating_sub(1);
        view.at = match key {
            KeyCode::Char('j') | KeyCode::Down => view.at + 1,
            KeyCode::Char('k') | KeyCode::Up => view.at.saturating_sub(1),
            KeyCode::Char('g') | KeyCode::Home => 0,
            KeyCode::Char('G') | KeyCode::End => last,
            KeyCode::PageDown | KeyCode::Char(' ') => view.at + FAR,
            KeyCode::PageUp => view.at.saturating_sub(FAR),
            _ => view.at,
        }
        .min(last);
        None
    }

    fn in_help(&mut self, key: KeyEvent) {
        self.help = match (key.code, self.help) {
            // No further than to where something is left to read: drawing sees to the end.
            (KeyCode::Char('j') | KeyCode::Down, Some(from)) => Some((from + 1).min(30)),
            (KeyCode::Char('k') | KeyCode::Up, Some(from)) => Some(from.saturating_sub(1)),
            _ => None,
        };
    }

    /// Opens what is chosen.
    fn enter(&mut self) -> Option<Request> {
        let view = self.view();
        let opened = match &view.of {
            Of::Topics { .. } => View::entries(view.topic()?, EntryState::Waiting),
            Of::Entries(entries) => View::timer(&entries.topic, &view.entry()?.key),
            Of::Listeners { .. } | Of::Timer { .. } => return None,
        };
        self.open(opened)
    }

    /// The dead letters of what is chosen.
    fn letters(&mut self) -> Option<Request> {
        match &self.view().of {
            Of::Topics { .. } => {
                let opened = View::entries(self.view().topic()?, EntryState::Dead);
                self.open(opened)
            }
            _ => self.show_state(EntryState::Dead),
        }
    }

    /// The next tab, or the one before.
    fn turn(&mut self, by: isize) -> Option<Request> {
        let (at, tabs) = match &self.view().of {
            Of::Topics { .. } => (0, 2),
            Of::Listeners { .. } => (1, 2),
            Of::Entries(entries) => {
                let states = entries.states();
                (states.iter().position(|state| *state == entries.state.0)?, states.len())
            }
            Of::Timer { .. } => return None,
        };
        self.tab((at + tabs).checked_add_signed(by)? % tabs)
    }

    fn tab(&mut self, tab: usize) -> Option<Request> {
        match (&self.view().of, tab) {
            (Of::Topics { .. }, 1) => self.open(View::listeners()),
            (Of::Listeners { .. }, 0) => self.back(),
            (Of::Entries(_), _) => self.show_state(*EntryState::ALL.get(tab)?),
            _ => None,
        }
    }

    fn show_state(&mut self, state: EntryState) -> Option<Request> {
        self.view_mut().set_state(state).then(|| self.look())
    }

    fn page(&mut self, turn: fn(&mut View) -> bool, none: &str) -> Option<Request> {
        if turn(self.view_mut()) {
            return Some(self.look());
        }
        // Before the answer nobody knows.
        if self.view().seen.is_some() {
            self.say(none);
        }
        None
    }
}
