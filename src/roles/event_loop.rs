//! Passes the events of a server to the roles that handle them.

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

/// The maximum number of events that are handled before other tasks run.
const MAX_EVENT_BATCH: usize = 4096;
/// The least time between two refreshes of the map that a server without slots causes by announcing expired keys.
const SLOTLESS_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Passes the events of one server on until its stream ends. It never waits for a receiver, as wake-ups and fences arrive
/// in the same stream.
pub(crate) struct EventLoop {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    events: mpsc::Receiver<Event>,
    /// The queue of the reader of attached keys.
    attached: Option<ReaderQueue>,
    /// When the map was last marked as stale because of an event.
    map_marked_stale_at: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        node: Arc<NodeState>,
        events: mpsc::Receiver<Event>,
        attached: Option<ReaderQueue>,
    ) -> Self {
        Self { runtime, node, events, attached, map_marked_stale_at: None }
    }

    pub(crate) async fn run(mut self) {
        let mut events = Vec::new();
        while self.events.recv_many(&mut events, MAX_EVENT_BATCH).await > 0 {
            events.drain(..).for_each(|event| self.handle_event(event));
        }
    }

    fn handle_event(&mut self, event: Event) {
        let runtime = &self.runtime;
        self.node.note_event(&event);
        match event {
            // The decoder was created with the partitions of this runtime, in their order.
            Event::Wake { partition, index, at } => {
                runtime.partitions[partition].wakeup_of(index).announce_deadline(at);
            }
            Event::Unclaimed { partition, at } => {
                runtime.partitions[partition].due_wakeup.announce_unclaimed(at);
            }
            Event::TryNow { partition, destination } => {
                if let Some(all) = &runtime.partitions[partition].topic.config.destinations {
                    all.try_now(&destination);
                }
            }
            Event::Fence { partition, held } => runtime.partitions[partition].leases.fence(held),
            Event::Expired(key) => self.handle_expiry(key),
            Event::Gap(gap) => {
                runtime.stats.gaps.add(1);
                debug!(?gap, "events may have been missed: sweeping");
                // Publishing the value prompts a sweep. Events continue to arrive after an overflow or a reload. After
                // another gap, sweeps are frequent until a heartbeat arrives.
                let still_flow = matches!(gap, Gap::Overflow | Gap::Reloaded);
                self.node.events_flowing.send_modify(|events_flow| *events_flow &= still_flow);
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
            Event::Joined => self.node.request_sweep(),
            Event::Moved => runtime.client.store.topology().mark_map_stale(),
            // The subscription has already passed written keys to the prompter.
            Event::Changed(_, Change::Written) => {}
            Event::Changed(key, Change::Deleted) => {
                if runtime.route(&key).is_some() {
                    self.forward_to_reader(ReaderEvent::Deleted(key));
                }
            }
            Event::Canary(canary) => self.forward_to_reader(ReaderEvent::Canary(canary)),
            Event::CanaryRefused => runtime.stats.refused_heartbeats.add(1),
            Event::Subscribed(refused) => self.note_refused_changes(&refused),
            Event::KeysRead(reply) => self.forward_to_reader(ReaderEvent::KeysRead(reply)),
            Event::CanaryUnverified(number) => self.forward_to_reader(ReaderEvent::CanaryUnverified(number)),
            Event::Server { node, at } => self.forward_to_reader(ReaderEvent::Server { node, at }),
            Event::Lost(count) => {
                runtime.stats.dropped_events.add_u64(count);
                self.forward_to_reader(ReaderEvent::Lost);
            }
        }
    }

    /// Passes an event to the reader of attached keys, if there are attached topics.
    fn forward_to_reader(&mut self, event: ReaderEvent) {
        if let Some(attached) = &mut self.attached {
            attached.push_event(event);
        }
    }

    /// Notes which subscriptions to changes of attached keys were refused. Logs each refusal once, until it ends.
    fn note_refused_changes(&self, refused: &[Option<String>]) {
        for (topic, refused) in self.runtime.attached_topics().zip(refused) {
            let Some(error) = refused else {
                topic.refusals.end(RequiredPermission::Changes);
                continue;
            };
            topic.attached.refused_subscriptions.add(1);
            if topic.refusals.begin(RequiredPermission::Changes, error) {
                warn!(topic = %topic.config.name, %error, "changes of attached keys are not received: they are found by scanning");
            }
        }
    }

    /// Marks the cluster's map as stale if it assigns no slots to the server, as only a primary with slots announces
    /// expired keys.
    fn mark_map_stale_if_slotless(&mut self) {
        let lately = self.map_marked_stale_at.is_some_and(|at| at.elapsed() < SLOTLESS_REFRESH_INTERVAL);
        if !lately && self.node.assignment.borrow().canaries.is_none() {
            self.map_marked_stale_at = Some(Instant::now());
            self.runtime.client.store.topology().mark_map_stale();
        }
    }

    /// Passes the expiry of an attached key to the reader. For a marker key, requests a claim.
    fn handle_expiry(&mut self, key: Bytes) {
        let Some(partition) = self.runtime.route(&key) else {
            self.runtime.stats.unrouted.add(1);
            trace!(key = %Escaped(&key), "an expired key matches no topic");
            return;
        };
        let topic = &self.runtime.partitions[partition].topic;
        topic.stats.announced.add(1);
        if topic.config.attach.is_some() {
            self.mark_map_stale_if_slotless();
            self.forward_to_reader(ReaderEvent::Expired(partition, key));
        } else {
            self.runtime.partitions[partition].note_expiry();
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
        let (key_reads, _requested) = mpsc::channel(1);
        let attached = AttachedRoles::start(&runtime, &mut roles, &mut writers);
        let node = NodeState::of(&runtime);
        runtime.add_node(&node);
        let ServerReader { queue, reader } = attached.open_reader(&node, None, key_reads);
        roles.spawn(reader);
        let (sender, events) = mpsc::channel(1);
        roles.spawn(EventLoop::new(runtime.clone(), node, events, Some(queue)).run());

        sender.send(Event::Canary(Canary { number: 1, ..Canary::default() })).await.unwrap();
        let flood = async {
            // This exceeds the room of the writer and the reader.
            for number in 0..400_000 {
                sender.send(Event::Expired(format!("b:{number}").into())).await.unwrap();
            }
            sender.send(Event::Wake { partition: 0, index: Index::Due, at: 7 }).await.unwrap();
            let held = LeaseRef { key: Bytes::from_static(b"a:1"), token: Token::random() };
            sender.send(Event::Fence { partition: 0, held }).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(1), flood).await.expect("nothing waits");
        runtime.partitions[0].due_wakeup.wait().await;
        assert_eq!(runtime.partitions[0].due_wakeup.take_pending().head, Some(7));
        assert!(runtime.stats.gaps.get() > 0, "dropped events are a gap");
    }
}
