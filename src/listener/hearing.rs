//! What follows from what is heard.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tracing::{debug, trace};

use super::Core;
use super::sweeper::Sweeper;
use crate::attach::{Ask, Attachment};
use crate::escape::Escaped;
use crate::store::keys::is_own;
use crate::store::{Gap, Hint};

/// Passes hints on to the desks, until the stream ends.
pub(crate) struct Hearing {
    pub(super) core: Arc<Core>,
    pub(super) hints: mpsc::Receiver<Hint>,
    pub(super) sweeper: Arc<Sweeper>,
    /// Of attached topics.
    pub(super) attached: Option<Attachment>,
}

impl Hearing {
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                hint = self.hints.recv() => match hint {
                    Some(hint) => self.heard(hint).await,
                    None => return,
                },
                Some(ask) = asked(&mut self.attached) => {
                    if let Some(attached) = &mut self.attached {
                        attached.observer.asked(ask);
                    }
                }
            }
            if let Some(attached) = &mut self.attached {
                attached.observer.read_prompted();
            }
        }
    }

    async fn heard(&mut self, hint: Hint) {
        let core = &self.core;
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
            Hint::Expired(key) => self.expired(key).await,
            Hint::Gap(gap) => {
                core.stats.gaps.add(1);
                debug!(gap = gap.as_str(), "hints may have been missed: sweeping");
                self.sweeper.gap(gap);
                match (gap, &mut self.attached) {
                    (Gap::Disconnected, Some(attached)) => attached.observer.disconnected(),
                    (Gap::Silent, Some(attached)) => attached.observer.silent(),
                    _ => {}
                }
            }
            Hint::Anchored => {
                core.stats.anchored.add(1);
                self.sweeper.anchored();
            }
            Hint::Changed(key, change) => {
                let desk = core.route(&key);
                if let (Some(attached), Some(desk)) = (&mut self.attached, desk) {
                    attached.observer.changed(desk, key, change);
                }
            }
            Hint::Canary(canary) => {
                if let Some(attached) = &mut self.attached {
                    attached.observer.canary(canary).await;
                }
            }
            Hint::Touched(touched) => {
                if let Some(attached) = &mut self.attached {
                    attached.observer.touched(touched).await;
                }
            }
            Hint::Lost => {
                if let Some(attached) = &mut self.attached {
                    attached.observer.lost();
                }
            }
        }
    }

    async fn expired(&mut self, key: Bytes) {
        let Some(desk) = self.core.route(&key) else {
            self.core.stats.foreign.add(1);
            trace!(key = %Escaped(&key), "not ours");
            return;
        };
        let topic = &self.core.desks[desk].topic;
        topic.stats.heard.add(1);
        match &mut self.attached {
            Some(attached) if topic.shape.attach.is_some() => attached.observer.expired(desk, key).await,
            _ => self.core.desks[desk].note_expired(),
        }
    }
}

/// What attached topics' roles ask; nothing without such topics.
async fn asked(attached: &mut Option<Attachment>) -> Option<Ask> {
    match attached {
        Some(attached) => attached.asks.recv().await,
        None => std::future::pending().await,
    }
}

impl Core {
    /// The place of the desk of a key; none for a key of no topic, and for keylapse's own.
    pub(crate) fn route(&self, key: &[u8]) -> Option<usize> {
        if self.desks.first().is_some_and(|desk| is_own(&desk.at.namespace, key)) {
            return None;
        }
        self.router.route(key).map(|(_, topic)| self.topics[*topic].desk_of(key))
    }
}
