//! What follows from what is heard.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::OptionFuture;
use tokio::sync::mpsc;
use tracing::{debug, trace};

use crate::attached::AttachedRoles;
use crate::escape::Escaped;
use crate::events::{Event, Gap};
use crate::runtime::Runtime;

/// Passes events on to the partitions, until the stream ends.
pub(crate) struct EventLoop {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) events: mpsc::Receiver<Event>,
    /// Of attached topics.
    pub(crate) attached: Option<AttachedRoles>,
}

impl EventLoop {
    pub(crate) async fn run(mut self) {
        loop {
            let requests = self.attached.as_mut().map(|attached| attached.requests.recv());
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.heard(event).await,
                    None => return,
                },
                Some(Some(request)) = OptionFuture::from(requests) => {
                    if let Some(attached) = &mut self.attached {
                        attached.reader.asked(request);
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
        match (event, &mut self.attached) {
            (Event::Wake { partition, index, at }, _) => {
                if let Some(partition) = runtime.partitions.get(partition) {
                    partition.wakeup_of(index).head(at);
                }
            }
            (Event::Fence { partition, held }, _) => {
                if let Some(partition) = runtime.partitions.get(partition) {
                    partition.leases.fence(held);
                }
            }
            (Event::Expired(key), _) => self.expired(key).await,
            (Event::Gap(gap), attached) => {
                runtime.stats.gaps.add(1);
                debug!(?gap, "events may have been missed: sweeping");
                // Often until events flow again; what a full queue has dropped is found at once.
                runtime.calm.send_modify(|calm| *calm &= gap == Gap::Overflow);
                match (gap, attached) {
                    (Gap::Disconnected, Some(attached)) => attached.reader.disconnected(),
                    (Gap::Silent, Some(attached)) => attached.reader.silent(),
                    _ => {}
                }
            }
            (Event::Anchored, _) => {
                runtime.stats.anchored.add(1);
                runtime.calm.send_replace(true);
            }
            (Event::Changed(key, change), Some(attached)) => {
                if let Some(partition) = runtime.route(&key) {
                    attached.reader.changed(partition, key, change);
                }
            }
            (Event::Canary(canary), Some(attached)) => attached.reader.canary(canary).await,
            (Event::Touched(touched), Some(attached)) => attached.reader.touched(touched).await,
            (Event::Lost, Some(attached)) => attached.reader.lost(),
            (Event::Changed(..) | Event::Canary(_) | Event::Touched(_) | Event::Lost, None) => {}
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
