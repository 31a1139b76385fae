//! The role of one of several servers, and the expiries that it announced before its role was confirmed.
//!
//! A server that was paused, replaced and resumed announces expiries that its successor has announced, too. It accepts
//! writes, and its connection stays open. Therefore another server is asked for its role after each gap. If the server was
//! replaced, its successor checks the keys of its pending expiries.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::attached::pending::PositionedExpiry;
use crate::attached::reader::{StreamReader, arming_id_of};
use crate::attached::request::{ReadReservation, ReaderRequest, SentAt};
use crate::attached::stream::Stream;
use crate::attached::writer::Write;
use crate::connection::{Cluster, Endpoint, NodeRole, RetryDelays, Sentinels, Server};
use crate::error::Result;
use crate::events::FoundKeys;
use crate::log::{debug, info, warn};
use crate::wire::{AnnouncedExpiry, ExpiryIdentity, KeyAbsence, KeyDeadline, KeySnapshot, NodeId, Position};

/// The longest pause before the role is queried again, as a failover reaches the other servers at different times. Also
/// the pause before keys are passed on again.
pub(super) const ROLE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long other servers may still call a newly promoted primary a replica.
const REPLICA_CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a reader whose server is gone waits for the new owners of the slots.
const NEW_OWNER_TIMEOUT: Duration = Duration::from_secs(60);

/// The servers that report the role of another server: cluster nodes or Sentinels.
pub(crate) struct Peers {
    source: PeerSource,
    /// True if the server was a primary when its role was last reported.
    pub(super) was_primary: bool,
    /// True if the server was a primary when the listener started.
    pub(super) was_primary_at_start: bool,
}

#[derive(Clone)]
enum PeerSource {
    /// The other nodes of a Redis Cluster, and the endpoint of this one.
    Nodes(Arc<Cluster>, Endpoint),
    /// Sentinels, and the address of the server that they named last.
    Sentinels(Arc<Sentinels>, String),
}

impl Peers {
    /// Returns the peers of a node that joined a cluster after the listener started.
    pub(crate) fn of_new_node(cluster: Arc<Cluster>, endpoint: Endpoint, was_primary: bool) -> Self {
        Self { source: PeerSource::Nodes(cluster, endpoint), was_primary, was_primary_at_start: false }
    }

    /// Returns the peers of a node that the cluster had when the listener started.
    pub(crate) fn of_initial_node(cluster: Arc<Cluster>, endpoint: Endpoint, was_primary: bool) -> Self {
        Self { was_primary_at_start: was_primary, ..Self::of_new_node(cluster, endpoint, was_primary) }
    }

    /// Returns the peers of a server that Sentinel names. None if its address is fixed.
    pub(crate) fn of_sentinels(server: &Server) -> Option<Self> {
        let source = PeerSource::Sentinels(server.sentinels()?, server.last_address().endpoint().to_string());
        Some(Self { source, was_primary: true, was_primary_at_start: true })
    }

    /// Returns the endpoint of the server itself, if it is a node of Redis Cluster.
    pub(in crate::attached) fn endpoint(&self) -> Option<Endpoint> {
        match &self.source {
            PeerSource::Nodes(_, endpoint) => Some(endpoint.clone()),
            PeerSource::Sentinels(..) => None,
        }
    }

    fn are_nodes(&self) -> bool {
        matches!(self.source, PeerSource::Nodes(..))
    }
}

impl PeerSource {
    async fn role_of(&self, node: NodeId) -> Result<NodeRole> {
        match self {
            Self::Nodes(cluster, endpoint) => {
                let name = String::from_utf8_lossy(node.as_bytes()).into_owned();
                cluster.query_role_of(&name, endpoint).await
            }
            Self::Sentinels(sentinels, at) => {
                let is_named = sentinels.find_primary().await?.endpoint().to_string() == *at;
                Ok(if is_named { NodeRole::Primary } else { NodeRole::Replica })
            }
        }
    }
}

/// The query for the role of a server. Empty while none runs.
#[derive(Default)]
pub(super) struct RoleQuery(JoinSet<NodeRole>);

impl RoleQuery {
    /// Waits for the role. Never returns if no query runs.
    pub(super) async fn finished(&mut self) -> NodeRole {
        match self.0.join_next().await {
            // Only the reader cancels a query, so an error here is a panic of the query.
            Some(role) => role.expect("the query for a server's role panicked"),
            None => std::future::pending().await,
        }
    }

    /// Cancels the query, as its answer may be older than the gap that has just begun.
    pub(super) fn cancel(&mut self) {
        self.0 = JoinSet::new();
    }
}

impl StreamReader {
    /// Starts a query for the role of this server, if the role is needed and no query runs.
    pub(super) fn query_role(&mut self) {
        let Some(peers) = &self.peers else { return };
        let matters = self.stream.is_anchored() || !self.pending.is_empty();
        if self.pending.is_confirmed() || !matters || !self.role_query.0.is_empty() {
            return;
        }
        let (source, node, was_primary) = (peers.source.clone(), self.stream.node(), peers.was_primary);
        let ask = async move {
            let (mut delays, began) = (RetryDelays::default(), Instant::now());
            loop {
                match source.role_of(node).await {
                    Ok(NodeRole::Primary) => return NodeRole::Primary,
                    Ok(NodeRole::Replica)
                        if was_primary || began.elapsed() >= REPLICA_CONFIRMATION_TIMEOUT =>
                    {
                        return NodeRole::Replica;
                    }
                    Ok(_) => {}
                    Err(error) => debug!(?node, %error, "cannot query the role of a server"),
                }
                tokio::time::sleep(delays.next().min(ROLE_RETRY_DELAY)).await;
            }
        };
        self.role_query.0.spawn(ask);
    }

    /// Applies the role that `peers` reported. The query began after the last gap did.
    pub(super) async fn apply_role(&mut self, role: NodeRole) {
        match role {
            NodeRole::Primary => {
                self.peers.iter_mut().for_each(|peers| peers.was_primary = true);
                self.pending.confirm();
                self.resume_confirmed().await;
            }
            NodeRole::Replica => {
                let dropped = self.pending.take_all_keys();
                info!(server = ?self.node, keys = dropped.len(), "a server was replaced: checking the keys that it announced on their present owners");
                self.keep_replaced(self.stream.node(), dropped);
                if self.peers.as_ref().is_some_and(Peers::are_nodes) {
                    self.peers.iter_mut().for_each(|peers| peers.was_primary = false);
                    self.pass_on();
                }
            }
            NodeRole::Unknown => {}
        }
    }

    /// Switches to another server, which Sentinel has named, or to the server after its restart.
    pub(super) fn on_server(&mut self, node: NodeId, at: String) {
        if let Some(Peers { source: PeerSource::Sentinels(_, present), .. }) = &mut self.peers {
            *present = at;
        }
        let before = self.stream.node();
        if before == node {
            return;
        }
        let keys = self.pending.take_all_keys();
        self.keep_replaced(before, keys);
        self.stream = Stream::of(node);
        self.readers.set_node(&self.own_requests, node);
        self.mark_unconfirmed();
    }

    /// Ends the gap of one of several servers, if it is confirmed and its stream is anchored. Records the expiries with a
    /// position, and reads the keys that expired in the gap.
    pub(super) async fn resume_confirmed(&mut self) {
        if self.peers.is_none() || !self.is_trusted() {
            return;
        }
        self.runtime.update_stream(&self.node, |known| {
            known.anchored = true;
            known.can_track = true;
            known.gaps += 1;
        });
        for PositionedExpiry { partition, key, at, since } in self.pending.take_positioned() {
            let arming = arming_id_of(&key, at, false);
            let note = AnnouncedExpiry { key, identity: ExpiryIdentity::Anchored { at, since }, arming };
            self.write(partition, Write::RecordExpiry(note), ReadReservation::default()).await;
        }
        self.read_gap_keys();
        self.check_replaced_keys();
    }

    pub(super) fn keep_replaced(&mut self, by: NodeId, keys: Vec<Bytes>) {
        let lost = self.replaced_keys.add(by, keys);
        self.warn_of_dropped(lost, "the buffer of 64 MiB is full");
    }

    /// Returns whether this reader has keys that other readers must check, as its server is no longer a primary.
    pub(super) fn has_to_pass_on(&self) -> bool {
        let is_replica = |peers: &Peers| peers.are_nodes() && !peers.was_primary;
        !self.replaced_keys.is_empty() && self.peers.as_ref().is_some_and(is_replica)
    }

    /// Sends the keys in `replaced_keys` to the readers of their present owners, which check them. Keeps those without an
    /// owner, and those whose reader is busy.
    pub(super) fn pass_on(&mut self) {
        for (by, keys) in self.replaced_keys.take_all() {
            let left = self.send_to_owners(by, keys);
            self.keep_replaced(by, left);
        }
    }

    /// Returns the keys that were not sent.
    fn send_to_owners(&self, by: NodeId, keys: Vec<Bytes>) -> Vec<Bytes> {
        let mut left: BTreeSet<_> = keys.iter().cloned().collect();
        for (owner, keys) in self.readers.divide_by_reader(keys, |key| key) {
            if !owner.same_channel(&self.own_requests)
                && owner.try_send(ReaderRequest::CheckReplaced(by, keys.clone())).is_ok()
            {
                keys.iter().for_each(|key| _ = left.remove(key));
            }
        }
        left.into_iter().collect()
    }

    fn warn_of_dropped(&self, count: usize, why: &str) {
        if count > 0 {
            let server = &self.node;
            warn!(?server, count, why, "keys that a replaced server announced were dropped without a check");
        }
    }

    /// Passes all keys on once the cluster's map no longer has the server: the keys of its pending expiries, and the keys
    /// of replaced servers that this reader had to check. Their present owners check them.
    pub(super) async fn retire(&mut self) {
        if !self.peers.as_ref().is_some_and(Peers::are_nodes) {
            return;
        }
        self.forget_reads();
        let keys = self.pending.take_all_keys();
        self.keep_replaced(self.stream.node(), keys);
        let (began, mut delays) = (Instant::now(), RetryDelays::default());
        while !self.replaced_keys.is_empty() && began.elapsed() < NEW_OWNER_TIMEOUT {
            self.pass_on();
            tokio::time::sleep(delays.next().min(ROLE_RETRY_DELAY)).await;
        }
        self.warn_of_dropped(self.replaced_keys.len(), "no server owns their slots");
    }

    /// Records the expiries of those keys that are gone. The replaced server `by` may have announced them while it was the
    /// primary, and no other server announces them again.
    pub(super) async fn record_replaced(
        &mut self,
        by: NodeId,
        keys: Vec<Bytes>,
        answer: FoundKeys,
        sent: SentAt,
    ) {
        for (key, KeySnapshot { stamp, life, .. }) in keys.into_iter().zip(answer.1) {
            let Some(partition) = self.runtime.route(&key).filter(|_| life == KeyDeadline::Gone) else {
                continue;
            };
            let (at, asked) = (self.stream.position_of(&key), self.earliest_sent(partition, sent));
            let arming = arming_id_of(&key, Position { node: by, ..at }, true);
            let identity =
                ExpiryIdentity::Replaced { by, gone: KeyAbsence { at, stamp, requested_at: asked } };
            self.write(
                partition,
                Write::RecordExpiry(AnnouncedExpiry { key, identity, arming }),
                ReadReservation::default(),
            )
            .await;
        }
    }
}
