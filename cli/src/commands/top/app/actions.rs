//! What can be done to what is chosen, and what is asked before.

use keylapse_console::{EntryState, TopicStanding, text};

use super::{App, Line, Notice, Of, Purpose, Question};
use crate::commands::top::model::{Act, Deed, EntryRow, Letter, TopicRow};
use crate::output::{counted, short};

/// An action that makes sense now: its key, and what it is called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) key: char,
    pub(crate) name: &'static str,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    /// To be agreed to; it concerns so many timers.
    Ask(Act, u64),
    /// A reason has to be given first.
    Pause { topic: String, timers: u64 },
}

impl App {
    /// What can be done to what is chosen: nothing where it could not work, or may not.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        if !self.setting.write {
            return Vec::new();
        }
        let view = self.view();
        match &view.of {
            Of::Topics { .. } => view.topic().and_then(of_topic).into_iter().collect(),
            Of::Listeners { .. } => Vec::new(),
            Of::Entries(entries) => {
                let entry = view.entry().map(|entry| of_entry(&entries.topic, entry));
                entry.into_iter().flatten().chain(view.topic().and_then(of_topic)).collect()
            }
            Of::Timer { topic, known, .. } => {
                let Some(known) = known else { return Vec::new() };
                match (&known.timer, known.letters.first()) {
                    (Some(timer), _) => of_entry(topic, timer),
                    (None, Some(letter)) => of_entry(topic, letter),
                    (None, None) => Vec::new(),
                }
            }
        }
    }

    /// A dangerous key: asks before anything is done.
    pub(super) fn want(&mut self, key: char) {
        if !self.setting.write {
            return self.say("this is read-only: `keylapse top --write` can act");
        }
        if self.is_acting {
            return self.say("what was agreed to is still being done");
        }
        match self.offers().into_iter().find(|offer| offer.key == key) {
            Some(Offer { what: What::Ask(act, timers), .. }) => self.ask(act, timers),
            Some(Offer { what: What::Pause { topic, timers }, .. }) => {
                self.line = Some(Line::new(Purpose::Reason { topic, timers }, ""));
            }
            None => {
                let text = format!("{key} can do nothing to what is chosen here");
                self.notice = Some(Notice { text, is_bad: true });
            }
        }
    }

    pub(super) fn ask(&mut self, act: Act, timers: u64) {
        self.question = Some(Question { text: question(&act, timers), act });
    }
}

fn of_topic(topic: &TopicRow) -> Option<Offer> {
    let name = topic.name.clone();
    match topic.standing {
        TopicStanding::Paused => {
            let what = What::Ask(Act { topic: name, deed: Deed::Resume }, topic.overdue);
            Some(Offer { key: 'P', name: "resume", what })
        }
        TopicStanding::Fine | TopicStanding::Unserved | TopicStanding::HeldBack | TopicStanding::Failing => {
            Some(Offer { key: 'P', name: "pause", what: What::Pause { topic: name, timers: topic.timers } })
        }
        _ => None,
    }
}

fn of_entry(topic: &str, entry: &EntryRow) -> Vec<Offer> {
    let offer = |key, name, deed| {
        let what = What::Ask(Act { topic: topic.to_owned(), deed }, 1);
        Offer { key, name, what }
    };
    let run = || offer('R', "run now", Deed::RunNow(entry.key.clone()));
    let cancel = || offer('C', "cancel", Deed::Cancel(entry.key.clone()));
    match entry.state {
        EntryState::Waiting | EntryState::Quarantined => vec![run(), cancel()],
        EntryState::Running => vec![cancel()],
        EntryState::Dead => {
            let letter = Letter::of(entry);
            vec![offer('R', "replay", Deed::Replay(letter.clone())), offer('D', "drop", Deed::Drop(letter))]
        }
        _ => Vec::new(),
    }
}

/// What will happen, to what, and to how many.
fn question(act: &Act, timers: u64) -> String {
    let topic = short(&act.topic, 60);
    let of = |key: &[u8]| format!("{} of {topic}", short(&text::escape(key), 60));
    let timers = counted(timers, "timer");
    match &act.deed {
        Deed::RunNow(key) => format!("Run 1 timer now: {}?", of(key)),
        Deed::Cancel(key) => format!("Cancel 1 timer: {}? It will not run.", of(key)),
        Deed::Replay(letter) => {
            format!("Replay 1 dead letter: {}? Its attempts start over.", of(&letter.key))
        }
        Deed::Drop(letter) => format!("Drop 1 dead letter for good: {}?", of(&letter.key)),
        Deed::Pause(_) => format!("Pause {topic}? Its {timers} and all that come wait until it is resumed."),
        Deed::Resume => format!("Resume {topic}? What is overdue runs at once: {timers}."),
    }
}
