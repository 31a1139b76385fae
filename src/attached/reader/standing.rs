//! The role of one of several servers, and the keys that it announced before its role was confirmed.
//!
//! A server that was paused, replaced and resumed announces expiries that its successor has announced, too. It accepts
//! writes, and its connection stays open. Therefore another server is asked for its role after each gap.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::attached::held::PositionedExpiry;
use crate::attached::reader::{StreamReader, arming_id_of};
use crate::attached::request::{ReadReservation, ReaderRequest, SentAt};
use crate::attached::stream::Stream;
use crate::attached::writer::Write;
use crate::connection::{Cluster, Endpoint, NodeRole, RetryDelays, Sentinels, Server};
use crate::error::Result;
use crate::events::FoundKeys;
use crate::log::{debug, info, warn};
use crate::wire::{AnnouncedExpiry, ExpiryIdentity, KeyAbsence, KeyDeadline, KeySnapshot, NodeId, Position};

/// The pause before a question is repeated, as a failover reaches the other servers at different times.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A server that others still call a replica after this time was not just promoted.
const REPLICA_CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the new owners of the slots of a server that is gone.
const SUCCEEDED_WITHIN: Duration = Duration::from_secs(60);

/// The sources that report the role of a server.
pub(crate) struct Peers {
    who: PeerSource,
    /// True if the server was a primary when its role was last reported.
    pub(super) was_primary: bool,
    /// True if the server was a primary when the listener started.
    pub(super) is_first: bool,
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
    pub(crate) fn nodes(cluster: Arc<Cluster>, endpoint: Endpoint, was_primary: bool) -> Self {
        Self { who: PeerSource::Nodes(cluster, endpoint), was_primary, is_first: false }
    }

    /// Returns the peers of a node that the cluster had when the listener started.
    pub(crate) fn first_nodes(cluster: Arc<Cluster>, endpoint: Endpoint, was_primary: bool) -> Self {
        Self { is_first: was_primary, ..Self::nodes(cluster, endpoint, was_primary) }
    }

    /// Returns the peers of a server that Sentinel names. None if its address is fixed.
    pub(crate) fn successors(server: &Server) -> Option<Self> {
        let who = PeerSource::Sentinels(server.sentinels()?, server.last_address().endpoint().to_string());
        Some(Self { who, was_primary: true, is_first: true })
    }

    /// Returns the endpoint of a node of Redis Cluster.
    pub(in crate::attached) fn endpoint(&self) -> Option<Endpoint> {
        match &self.who {
            PeerSource::Nodes(_, endpoint) => Some(endpoint.clone()),
            PeerSource::Sentinels(..) => None,
        }
    }

    fn are_nodes(&self) -> bool {
        matches!(self.who, PeerSource::Nodes(..))
    }
}

impl PeerSource {
    async fn standing_of(&self, node: NodeId) -> Result<NodeRole> {
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

/// The query for the role of a server, while it runs.
#[derive(Default)]
pub(super) struct PeerQuery(JoinSet<NodeRole>);

impl PeerQuery {
    /// Waits for the role. Never returns if no query runs.
    pub(super) async fn answer(&mut self) -> NodeRole {
        match self.0.join_next().await {
            // Only the reader cancels a query, so an error here is a panic of the query.
            Some(standing) => standing.expect("the query for a server's role panicked"),
            None => std::future::pending().await,
        }
    }

    /// Cancels the query, as its answer could be older than the gap that has just begun.
    pub(super) fn forget(&mut self) {
        self.0 = JoinSet::new();
    }
}

impl StreamReader {
    /// Queries the role of this server, if it is needed and no query runs.
    pub(super) fn ask_peers(&mut self) {
        let Some(peers) = &self.peers else { return };
        let matters = self.stream.is_anchored() || !self.held.is_empty();
        if self.held.is_confirmed() || !matters || !self.asking.0.is_empty() {
            return;
        }
        let (who, node, was_primary) = (peers.who.clone(), self.stream.node(), peers.was_primary);
        let ask = async move {
            let (mut delays, began) = (RetryDelays::default(), Instant::now());
            loop {
                match who.standing_of(node).await {
                    Ok(NodeRole::Primary) => return NodeRole::Primary,
                    Ok(NodeRole::Replica)
                        if was_primary || began.elapsed() >= REPLICA_CONFIRMATION_TIMEOUT =>
                    {
                        return NodeRole::Replica;
                    }
                    Ok(_) => {}
                    Err(error) => debug!(?node, %error, "cannot query the role of a server"),
                }
                tokio::time::sleep(delays.next().min(ASK_AGAIN)).await;
            }
        };
        self.asking.0.spawn(ask);
    }

    /// Applies the role that another source has reported since the last gap began.
    pub(super) async fn apply_role(&mut self, standing: NodeRole) {
        match standing {
            NodeRole::Primary => {
                self.peers.iter_mut().for_each(|peers| peers.was_primary = true);
                self.held.confirm();
                self.resume_confirmed().await;
            }
            NodeRole::Replica => {
                let dropped = self.held.take_all_keys();
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

    /// Switches to another server: Sentinel has named it, or the server was restarted.
    pub(super) fn connected_to(&mut self, node: NodeId, at: String) {
        if let Some(Peers { who: PeerSource::Sentinels(_, present), .. }) = &mut self.peers {
            *present = at;
        }
        let before = self.stream.node();
        if before == node {
            return;
        }
        let held = self.held.take_all_keys();
        self.keep_replaced(before, held);
        self.stream = Stream::of(node);
        self.readers.rename(&self.own_requests, node);
        self.mark_unconfirmed();
    }

    /// Records the expiries that waited for a confirmed role, if the stream is anchored, too.
    pub(super) async fn resume_confirmed(&mut self) {
        if self.peers.is_none() || !self.is_trusted() {
            return;
        }
        self.runtime.learn(&self.node, |known| {
            known.anchored = true;
            known.can_track = true;
            known.gaps += 1;
        });
        for PositionedExpiry { partition, key, at, since } in self.held.take_positioned() {
            let arming = arming_id_of(&key, at, false);
            let note = AnnouncedExpiry { key, identity: ExpiryIdentity::Anchored { at, since }, arming };
            self.write(partition, Write::Note(note), ReadReservation::default()).await;
        }
        self.read_unsure();
        self.look_at_replaced();
    }

    pub(super) fn keep_replaced(&mut self, by: NodeId, keys: Vec<Bytes>) {
        let lost = self.replaced.keep(by, keys);
        self.lose(lost, "the buffer of 64 MiB is full");
    }

    /// Returns whether this reader keeps keys for others to check, as its server is no longer a primary.
    pub(super) fn has_to_pass_on(&self) -> bool {
        let is_replica = |peers: &Peers| peers.are_nodes() && !peers.was_primary;
        !self.replaced.is_empty() && self.peers.as_ref().is_some_and(is_replica)
    }

    /// Sends the keys to the readers of their present owners, which check them. Keeps those without an owner.
    pub(super) fn pass_on(&mut self) {
        for (by, keys) in self.replaced.take() {
            let left = self.send_to_owners(by, keys);
            self.keep_replaced(by, left);
        }
    }

    fn send_to_owners(&self, by: NodeId, keys: Vec<Bytes>) -> Vec<Bytes> {
        let mut left: BTreeSet<_> = keys.iter().cloned().collect();
        for (owner, keys) in self.readers.share_out(keys, |key| key) {
            if !owner.same_channel(&self.own_requests)
                && owner.try_send(ReaderRequest::Replaced(by, keys.clone())).is_ok()
            {
                keys.iter().for_each(|key| _ = left.remove(key));
            }
        }
        left.into_iter().collect()
    }

    fn lose(&self, count: usize, why: &str) {
        if count > 0 {
            let server = &self.node;
            warn!(?server, count, why, "keys that a replaced server announced were dropped without a check");
        }
    }

    /// Passes all keys on when the server is gone, or its address is unknown. Its successor checks its unconfirmed
    /// keys, and the keys of replaced servers that this reader was asked to check.
    pub(super) async fn retire(&mut self) {
        if !self.peers.as_ref().is_some_and(Peers::are_nodes) {
            return;
        }
        self.forget_touches();
        let held = self.held.take_all_keys();
        self.keep_replaced(self.stream.node(), held);
        let (began, mut delays) = (Instant::now(), RetryDelays::default());
        while !self.replaced.is_empty() && began.elapsed() < SUCCEEDED_WITHIN {
            self.pass_on();
            tokio::time::sleep(delays.next().min(ASK_AGAIN)).await;
        }
        self.lose(self.replaced.len(), "no server owns their slots");
    }

    /// Records expiries of those keys that are gone. The server's predecessor may have announced them while it was the
    /// primary, and no other server announces them again.
    pub(super) async fn note_replaced(
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
            let (at, asked) = (self.stream.position_of(&key), self.asked_at(partition, sent));
            let arming = arming_id_of(&key, Position { node: by, ..at }, true);
            let identity =
                ExpiryIdentity::Replaced { by, gone: KeyAbsence { at, stamp, requested_at: asked } };
            self.write(
                partition,
                Write::Note(AnnouncedExpiry { key, identity, arming }),
                ReadReservation::default(),
            )
            .await;
        }
    }
}
