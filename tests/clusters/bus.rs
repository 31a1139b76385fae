//! Proxies before the ports where nodes of a cluster talk to each other, which part one from the others.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use futures::future::join_all;
use keylapse_support::eventually;
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::PATIENCE;

/// Where a packet says which node has sent it: before it are a signature, lengths, kinds and epochs.
const SENDER: std::ops::Range<usize> = 40..80;

/// The ids of the nodes that are parted from the others.
type Parted = watch::Sender<HashSet<String>>;

/// One proxy for each node. What replicas hear of their primaries, and clients of nodes, goes other ways.
pub(crate) struct Buses {
    parted: Arc<Parted>,
    _proxies: JoinSet<()>,
}

impl Buses {
    /// Has each node announce its proxy, and waits until all talk by them.
    pub(crate) async fn between(cluster: &LocalCluster) -> Self {
        let (parted, mut proxies) = (Arc::<Parted>::default(), JoinSet::new());
        let mut announced = HashMap::new();
        for node in cluster.nodes() {
            let id = node.id().unwrap().to_owned();
            let bus = bus_ports(&node).await[&id];
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            proxies.spawn(serve(listener, bus, id.clone(), parted.clone()));
            let set = ["CONFIG", "SET", "cluster-announce-bus-port", &port.to_string()];
            assert!(!matches!(node.command(set).await, Ok(RedisReply::Error(_)) | Err(_)), "{node:?}");
            announced.insert(id, port);
        }
        eventually(PATIENCE, "all nodes to talk by proxies", async || {
            let known = join_all(cluster.nodes().iter().map(async |node| bus_ports(node).await)).await;
            known.iter().all(|known| *known == announced)
        })
        .await;
        cluster.wait_until_ok().await.unwrap();
        Self { parted, _proxies: proxies }
    }

    /// From now on no packet comes from this node to others, nor from them to it.
    pub(crate) fn part(&self, node: &LocalNode) {
        self.parted.send_modify(|parted| _ = parted.insert(node.id().unwrap().to_owned()));
    }

    /// All hear each other again.
    pub(crate) fn heal(&self) {
        self.parted.send_modify(HashSet::clear);
    }
}

/// Where a node believes that others, and it, are called: by their ids.
async fn bus_ports(node: &LocalNode) -> HashMap<String, u16> {
    let said = match node.command(["CLUSTER", "NODES"]).await {
        Ok(RedisReply::Bulk(said)) => String::from_utf8(said.to_vec()).unwrap(),
        other => panic!("{node:?} answers {other:?}"),
    };
    let port = |line: &str| {
        let (id, rest) = line.split_once(' ')?;
        let (_, after) = rest.split_once('@')?;
        let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((id.to_owned(), digits.parse().ok()?))
    };
    said.lines().filter_map(port).collect()
}

async fn serve(listener: TcpListener, bus: u16, owner: String, parted: Arc<Parted>) {
    let mut lines = JoinSet::new();
    while let Ok((caller, _)) = listener.accept().await {
        let (owner, parted) = (owner.clone(), parted.subscribe());
        lines.spawn(async move {
            let _ = talk(caller, bus, owner, parted).await; // they call again
        });
    }
}

/// Carries what is said, as long as neither is parted. Then the line is silent until that is over, and ends.
async fn talk(
    mut caller: TcpStream,
    bus: u16,
    owner: String,
    mut parted: watch::Receiver<HashSet<String>>,
) -> io::Result<()> {
    let mut first = [0; SENDER.end];
    caller.read_exact(&mut first).await?;
    let sender = String::from_utf8_lossy(&first[SENDER]).into_owned();
    let is_parted = |parted: &HashSet<String>| parted.contains(&owner) || parted.contains(&sender);
    let mut node = TcpStream::connect(("127.0.0.1", bus)).await?;
    let mut watched = parted.clone();
    tokio::select! {
        biased;
        _ = watched.wait_for(is_parted) => {}
        ended = async {
            node.write_all(&first).await?;
            copy_bidirectional(&mut caller, &mut node).await
        } => return ended.map(|_| ()),
    }
    let _ = parted.wait_for(|parted| !is_parted(parted)).await; // the proxies are gone
    Ok(())
}
