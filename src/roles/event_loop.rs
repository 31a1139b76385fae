//! What follows from what is heard.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::attached::{ReaderEvent, ReaderQueue};
use crate::escape::Escaped;
use crate::events::{Change, Event, Gap};
use crate::log::{debug, trace, warn};
use crate::runtime::{NodeState, RequiredPermission, Runtime};

/// Events that are taken together, before others get their turn.
const MAX_EVENT_BATCH: usize = 4096;
/// A server without slots that announces expired keys makes the map be asked for no more often than this.
const SUSPECT_EVERY: Duration = Duration::from_secs(1);

/// Passes events on, until the stream ends. It waits for nobody: wake-ups and fences come in the same stream.
pub(crate) struct EventLoop {
    runtime: Arc<Runtime>,
    /// Of which server.
    node: Arc<NodeState>,
    events: mpsc::Receiver<Event>,
    /// Of attached topics.
    attached: Option<ReaderQueue>,
    /// When the map was suspected last, for what the server has announced.
    suspected: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        node: Arc<NodeState>,
        events: mpsc::Receiver<Event>,
        attached: Option<ReaderQueue>,
    ) -> Self {
        Self { runtime, node, events, attached, suspected: None }
    }

    pub(crate) async fn run(mut self) {
        let mut events = Vec::new();
        while self.events.recv_many(&mut events, MAX_EVENT_BATCH).await > 0 {
            events.drain(..).for_each(|event| self.handle_event(event));
        }
    }

    fn handle_event(&mut self, event: Event) {
        let runtime = &self.runtime;
        self.node.note(&event);
        match event {
            // The decoder has the partitions of this runtime, in their order.
            Event::Wake { partition, index, at } => runtime.partitions[partition].wakeup_of(index).head(at),
            Event::Unclaimed { partition, at } => runtime.partitions[partition].wakeup.left(at),
            Event::TryNow { partition, destination } => {
                if let Some(all) = &runtime.partitions[partition].topic.config.destinations {
                    all.try_now(&destination);
                }
            }
            Event::Fence { partition, held } => runtime.partitions[partition].leases.fence(held),
            Event::Expired(key) => self.expired(key),
            Event::Gap(gap) => {
                runtime.stats.gaps.add(1);
                debug!(?gap, "events may have been missed: sweeping");
                // Often until events flow again; what was dropped, or came with other data, is found at once.
                let passes = matches!(gap, Gap::Overflow | Gap::Reloaded);
                self.node.events_flowing.send_modify(|calm| *calm &= passes);
                match gap {
                    Gap::Disconnected => self.forward_to_reader(ReaderEvent::Disconnected),
                    Gap::NoSubscription => self.forward_to_reader(ReaderEvent::NoSubscription),
                    Gap::Silent => self.forward_to_reader(ReaderEvent::Silent),
                    Gap::Overflow | Gap::NoWakeUps | Gap::Reloaded => {}
                }
            }
            Event::Anchored => {
                runtime.stats.anchored.add(1);
                self.node.events_flowing.send_replace(true);
            }
            Event::Joined(_) => self.node.sweep(),
            Event::Moved => runtime.client.store.topology().mark_map_stale(),
            // Of those that were written the subscription has told the prompter.
            Event::Changed(_, Change::Written) => {}
            Event::Changed(key, Change::Gone) => {
                if runtime.route(&key).is_some() {
                    self.forward_to_reader(ReaderEvent::Gone(key));
                }
            }
            Event::Canary(canary) => self.forward_to_reader(ReaderEvent::Canary(canary)),
            Event::Refused => runtime.stats.refused_heartbeats.add(1),
            Event::Subscribed(refused) => self.subscribed(&refused),
            Event::Touched(touched) => self.forward_to_reader(ReaderEvent::Touched(touched)),
            Event::CanaryUnverified(number) => self.forward_to_reader(ReaderEvent::CanaryUnverified(number)),
            Event::Server { node, at } => self.forward_to_reader(ReaderEvent::Server { node, at }),
            Event::Lost(count) => {
                runtime.stats.dropped_events.add_u64(count);
                self.forward_to_reader(ReaderEvent::Lost);
            }
        }
    }

    /// Tells the reader of attached topics, if there are any.
    fn forward_to_reader(&mut self, heard: ReaderEvent) {
        if let Some(attached) = &mut self.attached {
            attached.push_event(heard);
        }
    }

    /// Whether changes of attached keys may be heard. A refusal is said once, until they are.
    fn subscribed(&self, refused: &[Option<String>]) {
        for (topic, refused) in self.runtime.attached_topics().zip(refused) {
            let Some(error) = refused else {
                topic.refusals.end(RequiredPermission::Changes);
                continue;
            };
            topic.attached.refused_subscriptions.add(1);
            if topic.refusals.begin(RequiredPermission::Changes, error) {
                warn!(topic = %topic.config.name, %error, "changes of attached keys are not heard: they are found by scanning");
            }
        }
    }

    /// Only a primary of slots announces expired keys: by the map, it is none.
    fn suspect_if_slotless(&mut self) {
        let lately = self.suspected.is_some_and(|at| at.elapsed() < SUSPECT_EVERY);
        if !lately && self.node.share.borrow().canaries.is_none() {
            self.suspected = Some(Instant::now());
            self.runtime.client.store.topology().mark_map_stale();
        }
    }

    fn expired(&mut self, key: Bytes) {
        let Some(partition) = self.runtime.route(&key) else {
            self.runtime.stats.unrouted.add(1);
            trace!(key = %Escaped(&key), "of no topic");
            return;
        };
        let topic = &self.runtime.partitions[partition].topic;
        topic.stats.announced.add(1);
        if topic.config.attach.is_some() {
            self.suspect_if_slotless();
            self.forward_to_reader(ReaderEvent::Expired(partition, key));
        } else {
            self.runtime.partitions[partition].note_expired();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::attached::{Attached, AttachedRoles, ServerReader};
    use crate::events::Canary;
    use crate::id::Token;
    use crate::lapse::Lapse;
    use crate::listener::Listener;
    use crate::outcome::{Done, Failure};
    use crate::rig::Rig;
    use crate::topic::Topic;
    use crate::wire::{Index, LeaseRef};
    use keylapse_testserver::CallFault;

    #[tokio::test(start_paused = true)]
    async fn wake_ups_and_fences_do_not_wait_behind_a_parked_attached_partition() {
        let bed = Rig::new();
        bed.calls().fail("record_expiries", CallFault::Refused("WRONGTYPE"), 100_000);
        let handler = |_: Lapse<u32>| std::future::ready(Ok::<_, Failure>(Done));
        let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
        let listener = Listener::builder(bed.client())
            .on(Topic::<u32>::new("a:{id}").unwrap(), handler)
            .attach(Attached::new(Topic::<u32>::new("b:{id}").unwrap()), lapsed)
            .build()
            .unwrap();
        let runtime = listener.runtime.clone();
        let (mut roles, mut writers) = (JoinSet::new(), JoinSet::new());
        let (touches, _touched) = mpsc::channel(1);
        let attached = AttachedRoles::start(&runtime, &mut roles, &mut writers);
        let node = NodeState::of(&runtime);
        runtime.add_node(&node);
        let ServerReader { ear, reader } = attached.open_reader(&node, None, touches);
        roles.spawn(reader);
        let (heard, events) = mpsc::channel(1);
        roles.spawn(EventLoop::new(runtime.clone(), node, events, Some(ear)).run());

        heard.send(Event::Canary(Canary { number: 1, ..Canary::default() })).await.unwrap();
        let flood = async {
            // More than the writer and the reader have room for.
            for number in 0..400_000 {
                heard.send(Event::Expired(format!("b:{number}").into())).await.unwrap();
            }
            heard.send(Event::Wake { partition: 0, index: Index::Due, at: 7 }).await.unwrap();
            let held = LeaseRef { key: Bytes::from_static(b"a:1"), token: Token::random() };
            heard.send(Event::Fence { partition: 0, held }).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(1), flood).await.expect("nothing waits");
        runtime.partitions[0].wakeup.woken().await;
        assert_eq!(runtime.partitions[0].wakeup.take().head, Some(7));
        assert!(runtime.stats.gaps.get() > 0, "what found no room is missing, and that is said");
    }
}
