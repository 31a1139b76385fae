//! What follows from what is heard.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{debug, trace};

use super::Core;
use super::sweeper::Sweeper;
use crate::escape::Escaped;
use crate::store::Hint;

/// Passes hints on to the desks, until the stream ends.
pub(crate) async fn hear(core: Arc<Core>, mut hints: mpsc::Receiver<Hint>, sweeper: Arc<Sweeper>) {
    while let Some(hint) = hints.recv().await {
        match hint {
            Hint::Wake { partition, at } => {
                if let Some(desk) = core.desks.get(partition) {
                    desk.alarm.head(at);
                }
            }
            Hint::Fence { partition, held } => {
                if let Some(desk) = core.desks.get(partition) {
                    desk.flights.fence(held);
                }
            }
            Hint::Expired(key) => core.expired(&key),
            Hint::Gap(gap) => {
                core.stats.gaps.add(1);
                debug!(gap = gap.as_str(), "hints may have been missed: sweeping");
                sweeper.gap(gap);
            }
            Hint::Anchored => {
                core.stats.anchored.add(1);
                sweeper.anchored();
            }
        }
    }
}

impl Core {
    fn expired(&self, key: &[u8]) {
        let Some((_, topic)) = self.router.route(key) else {
            self.stats.foreign.add(1);
            trace!(key = %Escaped(key), "not ours");
            return;
        };
        let topic = &self.topics[*topic];
        topic.stats.heard.add(1);
        self.desks[topic.desk_of(key)].note_expired();
    }
}
