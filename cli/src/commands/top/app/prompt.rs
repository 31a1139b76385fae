//! What is typed in, and what is asked.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{App, Request};
use crate::commands::top::model::{Act, Deed};

/// Characters of what is typed in.
const LONGEST: usize = 200;

/// A line that is typed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) purpose: Purpose,
    pub(crate) text: String,
    /// What was wrong with it.
    pub(crate) refused: Option<String>,
}

/// What it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Filter,
    /// Why a topic is paused, which holds so many timers.
    Reason {
        topic: String,
        timers: u64,
    },
}

/// A question that `y` agrees to, and everything else declines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) text: String,
    pub(super) act: Act,
}

impl Line {
    pub(super) fn new(purpose: Purpose, text: &str) -> Self {
        Self { purpose, text: text.to_owned(), refused: None }
    }
}

impl App {
    /// A key while a question is on the screen.
    pub(super) fn answer(&mut self, key: KeyEvent) -> Option<Request> {
        let question = self.question.take()?;
        if matches!(key.code, KeyCode::Char('y' | 'Y')) {
            self.is_acting = true;
            return Some(Request::Act(question.act));
        }
        self.say("nothing was done");
        None
    }

    /// A key while a line is typed in.
    pub(super) fn edit(&mut self, key: KeyEvent) -> Option<Request> {
        let line = self.line.as_mut()?;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => self.line = None,
            KeyCode::Enter => return self.entered(),
            KeyCode::Backspace => _ = line.text.pop(),
            KeyCode::Char('u') if control => line.text.clear(),
            KeyCode::Char(c) if !control && !c.is_control() && line.text.chars().count() < LONGEST => {
                line.text.push(c);
            }
            _ => {}
        }
        self.line.iter_mut().for_each(|line| line.refused = None);
        None
    }

    fn entered(&mut self) -> Option<Request> {
        let mut line = self.line.take()?;
        match &line.purpose {
            Purpose::Filter => match self.view_mut().set_filter(line.text.trim()) {
                Ok(()) => return Some(self.look()),
                Err(why) => {
                    line.refused = Some(why);
                    self.line = Some(line);
                }
            },
            Purpose::Reason { topic, timers } => {
                let reason = line.text.trim();
                if reason.is_empty() {
                    line.refused = Some("say why, for whoever finds it paused".to_owned());
                    self.line = Some(line);
                } else {
                    let deed = Deed::Pause(reason.to_owned());
                    self.ask(Act { topic: topic.clone(), deed }, *timers);
                }
            }
        }
        None
    }
}
