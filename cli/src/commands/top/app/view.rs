//! What can be on the screen, and which line of it is chosen.

use std::time::Duration;

use keylapse_console::{Cursor, EntryState, Filter};

use crate::commands::top::desk::TOPICS;
use crate::commands::top::model::{Data, EntryPage, EntryRow, ListenerRow, Look, Timer, TopicPage, TopicRow};

/// One screen: what it is of, what is known of that, and which line is chosen.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) of: Of,
    /// The chosen line.
    pub(crate) at: usize,
    /// When the data was had, since the start.
    pub(crate) seen: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum Of {
    Topics { containing: String, skip: usize, page: Option<TopicPage> },
    Listeners { rows: Option<Vec<ListenerRow>> },
    Entries(Entries),
    Timer { topic: String, key: Vec<u8>, known: Option<Box<Timer>> },
}

/// A topic's entries in one state.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) topic: String,
    pub(crate) attached: bool,
    pub(crate) state: State,
    pub(crate) filter: String,
    /// Where the pages before this one began, and this one.
    pub(crate) pages: Vec<Option<Cursor>>,
    pub(crate) page: Option<Box<EntryPage>>,
}

/// The state whose entries are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) EntryState);

impl Default for State {
    fn default() -> Self {
        Self(EntryState::Waiting)
    }
}

impl View {
    fn new(of: Of) -> Self {
        Self { of, at: 0, seen: None }
    }

    pub(super) fn topics() -> Self {
        Self::new(Of::Topics { containing: String::new(), skip: 0, page: None })
    }

    pub(super) fn listeners() -> Self {
        Self::new(Of::Listeners { rows: None })
    }

    pub(super) fn entries(topic: &TopicRow, state: EntryState) -> Self {
        let (topic, attached) = (topic.name.clone(), topic.attached);
        let pages = vec![None];
        Self::new(Of::Entries(Entries { topic, attached, state: State(state), pages, ..Entries::default() }))
    }

    pub(super) fn timer(topic: &str, key: &[u8]) -> Self {
        Self::new(Of::Timer { topic: topic.to_owned(), key: key.to_vec(), known: None })
    }

    /// What has to be found out for it.
    pub(super) fn look(&self) -> Look {
        match &self.of {
            Of::Topics { containing, skip, .. } => {
                Look::Topics { containing: containing.clone(), skip: *skip }
            }
            Of::Listeners { .. } => Look::Listeners,
            Of::Entries(Entries { topic, state, filter, pages, .. }) => Look::Entries {
                topic: topic.clone(),
                state: state.0,
                filter: filter.clone(),
                after: pages.last().cloned().flatten(),
            },
            Of::Timer { topic, key, .. } => Look::Timer { topic: topic.clone(), key: key.clone() },
        }
    }

    /// Takes what was found out. The chosen line stays with what it shows.
    pub(super) fn take(&mut self, data: Data, now: Duration) {
        let chosen = self.name_of(self.at);
        match (&mut self.of, data) {
            (Of::Topics { page, .. }, Data::Topics(new)) => *page = Some(new),
            (Of::Listeners { rows }, Data::Listeners(new)) => *rows = Some(new),
            (Of::Entries(entries), Data::Entries(new)) => {
                entries.attached = new.topic.attached;
                entries.page = Some(new);
            }
            (Of::Timer { known, .. }, Data::Timer(new)) => *known = Some(new),
            _ => return,
        }
        self.seen = Some(now);
        let same =
            chosen.and_then(|name| (0..self.len()).find(|at| self.name_of(*at).as_ref() == Some(&name)));
        self.at = same.unwrap_or(self.at).min(self.len().saturating_sub(1));
    }

    /// Lines that can be chosen.
    pub(crate) fn len(&self) -> usize {
        match &self.of {
            Of::Topics { page, .. } => page.as_ref().map_or(0, |page| page.rows.len()),
            Of::Listeners { rows } => rows.as_ref().map_or(0, Vec::len),
            Of::Entries(entries) => entries.page.as_ref().map_or(0, |page| page.rows.len()),
            Of::Timer { known, .. } => known.as_ref().map_or(0, |known| known.timeline.len()),
        }
    }

    /// What tells a line from all others.
    fn name_of(&self, at: usize) -> Option<Vec<u8>> {
        match &self.of {
            Of::Topics { page, .. } => page.as_ref()?.rows.get(at).map(|row| row.name.clone().into_bytes()),
            Of::Listeners { rows } => rows.as_ref()?.get(at).map(|row| row.id.clone().into_bytes()),
            Of::Entries(entries) => entries.page.as_ref()?.rows.get(at).map(|row| {
                let died = if row.state == EntryState::Dead { row.at_ms } else { 0 };
                [row.id.as_deref().unwrap_or_default().as_bytes(), &died.to_be_bytes(), &row.key].concat()
            }),
            Of::Timer { .. } => None,
        }
    }

    pub(crate) fn topic(&self) -> Option<&TopicRow> {
        match &self.of {
            Of::Topics { page, .. } => page.as_ref()?.rows.get(self.at),
            Of::Entries(entries) => entries.page.as_ref().map(|page| &page.topic),
            _ => None,
        }
    }

    pub(crate) fn entry(&self) -> Option<&EntryRow> {
        match &self.of {
            Of::Entries(entries) => entries.page.as_ref()?.rows.get(self.at),
            _ => None,
        }
    }

    pub(crate) fn filter(&self) -> &str {
        match &self.of {
            Of::Topics { containing: filter, .. } | Of::Entries(Entries { filter, .. }) => filter,
            _ => "",
        }
    }

    /// Shows what passes this filter; or says what is wrong with it.
    pub(super) fn set_filter(&mut self, text: &str) -> Result<(), String> {
        match &mut self.of {
            Of::Topics { containing, skip, .. } => {
                (*containing, *skip) = (text.to_owned(), 0);
            }
            Of::Entries(entries) => {
                Filter::parse(text.split_whitespace()).map_err(|error| error.to_string())?;
                (entries.filter, entries.pages) = (text.to_owned(), vec![None]);
            }
            _ => return Ok(()),
        }
        self.forget();
        Ok(())
    }

    /// Shows entries in another state; whether that is another.
    pub(super) fn set_state(&mut self, state: EntryState) -> bool {
        match &mut self.of {
            Of::Entries(entries) if entries.state.0 != state && entries.states().contains(&state) => {
                (entries.state, entries.pages) = (State(state), vec![None]);
            }
            _ => return false,
        }
        self.forget();
        true
    }

    /// The page behind this one; whether there is one.
    pub(super) fn next_page(&mut self) -> bool {
        match &mut self.of {
            Of::Topics { skip, page: Some(page), .. } if *skip + TOPICS < page.matching => *skip += TOPICS,
            Of::Entries(entries) => {
                let next = entries.page.as_ref().and_then(|page| page.next.clone());
                let Some(next) = next else { return false };
                entries.pages.push(Some(next));
            }
            _ => return false,
        }
        self.forget();
        true
    }

    /// The page before this one; whether there is one.
    pub(super) fn previous_page(&mut self) -> bool {
        match &mut self.of {
            Of::Topics { skip, .. } if *skip > 0 => *skip -= TOPICS.min(*skip),
            Of::Entries(entries) if entries.pages.len() > 1 => _ = entries.pages.pop(),
            _ => return false,
        }
        self.forget();
        true
    }

    /// What was shown is of something else now. How the topic is stays on the screen.
    fn forget(&mut self) {
        self.at = 0;
        match &mut self.of {
            Of::Topics { page, .. } => *page = None,
            Of::Entries(Entries { page: Some(page), .. }) => {
                page.rows.clear();
                (page.next, page.looked_at) = (None, 0);
            }
            _ => {}
        }
        self.seen = None;
    }
}

impl Entries {
    /// The states that the topic's entries can be in.
    pub(crate) fn states(&self) -> &'static [EntryState] {
        &EntryState::ALL[..if self.attached { 5 } else { 4 }]
    }
}
