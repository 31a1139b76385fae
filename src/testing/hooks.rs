//! Where a client of a test differs from one of a program.

use super::notifications::Notifications;
use crate::events::EventStream;

/// What a test has put into a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    /// Whether time is tokio's, which tests may pause and advance.
    pub(crate) virtual_time: bool,
    pub(super) notifications: Option<Notifications>,
}

impl Hooks {
    /// Puts what breaks notifications between the subscription and the listener.
    pub(crate) fn between(&self, stream: EventStream) -> EventStream {
        match &self.notifications {
            Some(notifications) => EventStream { events: notifications.connect(stream.events), ..stream },
            None => stream,
        }
    }
}
