//! Where a client of a test differs from one of a program.

use super::notifications::Notifications;
use super::pulse::News;
use crate::events::{EventStream, Prompts};

/// What a test has put into a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    /// Whether time is tokio's, which tests may pause and advance.
    pub(crate) virtual_time: bool,
    pub(super) notifications: Option<Notifications>,
    /// Which of the looks that are made over and over can be left out.
    pub(super) news: Option<News>,
}

impl Hooks {
    pub(crate) fn news(&self) -> Option<News> {
        self.news.clone()
    }

    /// Puts what breaks notifications between the subscription and the listener.
    pub(crate) fn between(&self, stream: EventStream, prompts: &Prompts) -> EventStream {
        match &self.notifications {
            Some(notifications) => {
                let _ = prompts.line.set(notifications.clone());
                EventStream { events: notifications.connect(stream.events), ..stream }
            }
            None => stream,
        }
    }
}
