//! Whether one of several servers is believed, and what becomes of what it has announced before it is.
//!
//! One that was stopped, replaced and continued announces what its successor has announced, accepts writes, and its
//! connection stays open. So after each gap another server is asked what it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::attached::held::Placed;
use crate::attached::reader::{StreamReader, identity};
use crate::attached::request::{Request, Sent, Taken};
use crate::attached::stream::Stream;
use crate::attached::writer::Write;
use crate::connection::{Cluster, Endpoint, RetryDelays, Sentinels, Server, Standing};
use crate::error::Result;
use crate::events::Answer;
use crate::log::{debug, info, warn};
use crate::wire::{Found, FoundGone, Identity, Life, NodeId, Note, Position};

/// The others do not all know at once who has replaced whom.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// One that is still called a replica after so long is none that was just promoted.
const LATE: Duration = Duration::from_secs(10);
/// Who has the slots of a server that is gone is known within this time, or nobody has them.
const SUCCEEDED_WITHIN: Duration = Duration::from_secs(60);

/// The others, who say what a server is.
pub(crate) struct Peers {
    who: Who,
    /// Whether it was ever named a primary.
    pub(super) was_primary: bool,
    /// Set where it was a primary when the listener began.
    pub(super) is_first: bool,
}

#[derive(Clone)]
enum Who {
    /// The other nodes of a cluster; this one is there.
    Nodes(Arc<Cluster>, Endpoint),
    /// Sentinels; the server that was named last is there.
    Sentinels(Arc<Sentinels>, String),
}

impl Peers {
    /// Those of a cluster's node.
    pub(crate) fn nodes(cluster: Arc<Cluster>, endpoint: Endpoint, was_primary: bool) -> Self {
        Self { who: Who::Nodes(cluster, endpoint), was_primary, is_first: false }
    }

    /// Those of a node that is among the first that the listener knows.
    pub(crate) fn first_nodes(cluster: Arc<Cluster>, endpoint: Endpoint, was_primary: bool) -> Self {
        Self { is_first: was_primary, ..Self::nodes(cluster, endpoint, was_primary) }
    }

    /// Those of a server that sentinels name.
    pub(crate) fn successors(server: &Server) -> Option<Self> {
        let who = Who::Sentinels(server.sentinels()?, server.present().endpoint().to_string());
        Some(Self { who, was_primary: true, is_first: true })
    }

    /// Where a server of several is.
    pub(in crate::attached) fn endpoint(&self) -> Option<Endpoint> {
        match &self.who {
            Who::Nodes(_, endpoint) => Some(endpoint.clone()),
            Who::Sentinels(..) => None,
        }
    }

    fn are_nodes(&self) -> bool {
        matches!(self.who, Who::Nodes(..))
    }
}

impl Who {
    async fn standing_of(&self, node: NodeId) -> Result<Standing> {
        match self {
            Self::Nodes(cluster, endpoint) => {
                let name = String::from_utf8_lossy(node.as_bytes()).into_owned();
                cluster.standing_of(&name, endpoint).await
            }
            Self::Sentinels(sentinels, at) => {
                let is_named = sentinels.find_primary().await?.endpoint().to_string() == *at;
                Ok(if is_named { Standing::Primary } else { Standing::Replica })
            }
        }
    }
}

/// A question to them, while nobody has answered.
#[derive(Default)]
pub(super) struct Asking(JoinSet<Standing>);

impl Asking {
    /// What was answered; never, if nothing was asked.
    pub(super) async fn answer(&mut self) -> Standing {
        match self.0.join_next().await {
            // Nobody ends it but its reader: a panic in it is one here.
            Some(standing) => standing.expect("a question that ends"),
            None => std::future::pending().await,
        }
    }

    /// What is answered now is of before something was missed.
    pub(super) fn forget(&mut self) {
        self.0 = JoinSet::new();
    }
}

impl StreamReader {
    /// Has another server asked what this one is, if something depends on it.
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
                    Ok(Standing::Primary) => return Standing::Primary,
                    Ok(Standing::Replica) if was_primary || began.elapsed() >= LATE => {
                        return Standing::Replica;
                    }
                    Ok(_) => {}
                    Err(error) => debug!(?node, %error, "nobody says what a server is"),
                }
                tokio::time::sleep(delays.next().min(ASK_AGAIN)).await;
            }
        };
        self.asking.0.spawn(ask);
    }

    /// Another server has said what this one is, since something of it was missed.
    pub(super) async fn told(&mut self, standing: Standing) {
        match standing {
            Standing::Primary => {
                self.peers.iter_mut().for_each(|peers| peers.was_primary = true);
                self.held.confirm();
                self.believe().await;
            }
            Standing::Replica => {
                let dropped = self.held.give_up();
                info!(server = ?self.node, keys = dropped.len(), "what a server announced that was replaced is not believed");
                self.keep_replaced(self.stream.node(), dropped);
                if self.peers.as_ref().is_some_and(Peers::are_nodes) {
                    self.peers.iter_mut().for_each(|peers| peers.was_primary = false);
                    self.pass_on();
                }
            }
            Standing::Unknown => {}
        }
    }

    /// Sentinels have named another server than before, or it has been started anew.
    pub(super) fn connected_to(&mut self, node: NodeId, at: String) {
        if let Some(Peers { who: Who::Sentinels(_, present), .. }) = &mut self.peers {
            *present = at;
        }
        let before = self.stream.node();
        if before == node {
            return;
        }
        let held = self.held.give_up();
        self.keep_replaced(before, held);
        self.stream = Stream::of(node);
        self.readers.rename(&self.own_requests, node);
        self.doubt();
    }

    /// What waited for the server to be believed waits no more, if a canary was heard, too.
    pub(super) async fn believe(&mut self) {
        if self.peers.is_none() || !self.is_trusted() {
            return;
        }
        self.runtime.learn(&self.node, |known| {
            known.anchored = true;
            known.can_enrol = true;
            known.gaps += 1;
        });
        for Placed { partition, key, at, since } in self.held.take_placed() {
            let arming = identity(&key, at, false);
            let note = Note { key, identity: Identity::Anchored { at, since }, arming };
            self.write(partition, Write::Note(note), Taken::default()).await;
        }
        self.read_unsure();
        self.look_at_replaced();
    }

    pub(super) fn keep_replaced(&mut self, by: NodeId, keys: Vec<Bytes>) {
        let lost = self.replaced.keep(by, keys);
        self.lose(lost, "there is no room for more of them");
    }

    /// Whether it keeps what others have to say, as it is no primary any more.
    pub(super) fn has_to_pass_on(&self) -> bool {
        let is_replica = |peers: &Peers| peers.are_nodes() && !peers.was_primary;
        !self.replaced.is_empty() && self.peers.as_ref().is_some_and(is_replica)
    }

    /// The present owners of these keys say which of them are gone. Those that nobody has stay.
    pub(super) fn pass_on(&mut self) {
        for (by, keys) in self.replaced.take() {
            let left = self.hand_over(by, keys);
            self.keep_replaced(by, left);
        }
    }

    fn hand_over(&self, by: NodeId, keys: Vec<Bytes>) -> Vec<Bytes> {
        let mut left: BTreeSet<_> = keys.iter().cloned().collect();
        for (owner, keys) in self.readers.share_out(keys, |key| key) {
            if !owner.same_channel(&self.own_requests)
                && owner.try_send(Request::Replaced(by, keys.clone())).is_ok()
            {
                keys.iter().for_each(|key| _ = left.remove(key));
            }
        }
        left.into_iter().collect()
    }

    fn lose(&self, count: usize, why: &str) {
        if count > 0 {
            let server = &self.node;
            warn!(?server, count, why, "keys that a server announced which was replaced are not looked at");
        }
    }

    /// The server is gone, or nobody says where: what it has announced and nobody has confirmed is for its successor to say,
    /// and so is what it was asked about that others have announced.
    pub(super) async fn retire(&mut self) {
        if !self.peers.as_ref().is_some_and(Peers::are_nodes) {
            return;
        }
        self.forget_touches();
        let held = self.held.give_up();
        self.keep_replaced(self.stream.node(), held);
        let (began, mut delays) = (Instant::now(), RetryDelays::default());
        while !self.replaced.is_empty() && began.elapsed() < SUCCEEDED_WITHIN {
            self.pass_on();
            tokio::time::sleep(delays.next().min(ASK_AGAIN)).await;
        }
        self.lose(self.replaced.len(), "nobody has their slots");
    }

    /// Those that are gone may have been announced by the server's predecessor while it still was one, and by nobody else.
    pub(super) async fn note_replaced(&mut self, by: NodeId, keys: Vec<Bytes>, answer: Answer, sent: Sent) {
        for (key, Found { stamp, life, .. }) in keys.into_iter().zip(answer.1) {
            let Some(partition) = self.runtime.route(&key).filter(|_| life == Life::Gone) else { continue };
            let (at, asked) = (self.stream.place(&key), self.asked_at(partition, sent));
            let arming = identity(&key, Position { node: by, ..at }, true);
            let identity = Identity::Replaced { by, gone: FoundGone { at, stamp, asked } };
            self.write(partition, Write::Note(Note { key, identity, arming }), Taken::default()).await;
        }
    }
}
