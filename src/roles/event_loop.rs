//! What follows from what is heard.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tracing::{debug, trace};

use crate::attached::{AttachedRoles, Request};
use crate::escape::Escaped;
use crate::events::{Event, Gap};
use crate::roles::sweeper::Sweeper;
use crate::runtime::Runtime;

/// Passes events on to the partitions, until the stream ends.
pub(crate) struct EventLoop {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) sweeper: Arc<Sweeper>,
    /// Of attached topics.
    pub(crate) attached: Option<AttachedRoles>,
}

impl EventLoop {
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.heard(event).await,
                    None => return,
                },
                Some(ask) = asked(&mut self.attached) => {
                    if let Some(attached) = &mut self.attached {
                        attached.reader.asked(ask);
                    }
                }
            }
            if let Some(attached) = &mut self.attached {
                attached.reader.read_prompted();
            }
        }
    }

    async fn heard(&mut self, event: Event) {
        let runtime = &self.runtime;
        match event {
            Event::Wake { partition, at } => {
                if let Some(partition) = runtime.partitions.get(partition) {
                    partition.wakeup.head(at);
                }
            }
            Event::Fence { partition, held } => {
                if let Some(partition) = runtime.partitions.get(partition) {
                    partition.leases.fence(held);
                }
            }
            Event::Expired(key) => self.expired(key).await,
            Event::Gap(gap) => {
                runtime.stats.gaps.add(1);
                debug!(gap = gap.as_str(), "events may have been missed: sweeping");
                self.sweeper.gap(gap);
                match (gap, &mut self.attached) {
                    (Gap::Disconnected, Some(attached)) => attached.reader.disconnected(),
                    (Gap::Silent, Some(attached)) => attached.reader.silent(),
                    _ => {}
                }
            }
            Event::Anchored => {
                runtime.stats.anchored.add(1);
                self.sweeper.anchored();
            }
            Event::Changed(key, change) => {
                let partition = runtime.route(&key);
                if let (Some(attached), Some(partition)) = (&mut self.attached, partition) {
                    attached.reader.changed(partition, key, change);
                }
            }
            Event::Canary(canary) => {
                if let Some(attached) = &mut self.attached {
                    attached.reader.canary(canary).await;
                }
            }
            Event::Touched(touched) => {
                if let Some(attached) = &mut self.attached {
                    attached.reader.touched(touched).await;
                }
            }
            Event::Lost => {
                if let Some(attached) = &mut self.attached {
                    attached.reader.lost();
                }
            }
        }
    }

    async fn expired(&mut self, key: Bytes) {
        let Some(partition) = self.runtime.route(&key) else {
            self.runtime.stats.unrouted.add(1);
            trace!(key = %Escaped(&key), "of no topic");
            return;
        };
        let topic = &self.runtime.partitions[partition].topic;
        topic.stats.heard.add(1);
        match &mut self.attached {
            Some(attached) if topic.config.attach.is_some() => attached.reader.expired(partition, key).await,
            _ => self.runtime.partitions[partition].note_expired(),
        }
    }
}

/// What attached topics' roles ask; nothing without such topics.
async fn asked(attached: &mut Option<AttachedRoles>) -> Option<Request> {
    match attached {
        Some(attached) => attached.requests.recv().await,
        None => std::future::pending().await,
    }
}
