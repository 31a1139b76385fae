//! Keeps partitions heard: subscribes where they are held, says again and again that somebody looks on, and begins anew
//! when a line ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Notify;

use crate::connection::{Address, ClusterMap, Topology};
use crate::console::tail::queue::Sender;
use crate::error::Result;
use crate::events::tail::{Overheard, TailLine, listen};
use crate::log::debug;
use crate::wire::{PartitionNames, Store};

/// So often partitions are told that somebody looks on ...
const AGAIN: Duration = Duration::from_secs(5);
/// ... for so long.
const AHEAD_MS: u64 = 20_000;
/// Partitions that are told at the same time.
const TOLD: usize = 250;
/// Waits between tries to subscribe, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// While some partitions are heard nowhere, they are looked for this often.
const ALERT: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    store: Store,
    partitions: Arc<[PartitionNames]>,
    queue: Sender,
    lines: Vec<(Address, TailLine)>,
    /// One of the present lines has ended.
    ended: Arc<Notify>,
}

impl Keeper {
    /// Once it is answered, all that starts and ends is heard.
    pub(super) async fn begin(
        store: Store,
        partitions: Arc<[PartitionNames]>,
        queue: Sender,
    ) -> Result<Self> {
        let mut keeper = Self { store, partitions, queue, lines: Vec::new(), ended: Arc::default() };
        keeper.subscribe().await?;
        keeper.look_on().await?;
        Ok(keeper)
    }

    /// Until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let is_whole = self.is_whole();
            tokio::select! {
                () = self.ended.notified() => self.begin_anew().await,
                () = self.moved() => self.begin_anew().await,
                () = tokio::time::sleep(ALERT), if !is_whole => self.begin_anew().await,
                () = tokio::time::sleep(AGAIN), if is_whole => {}
            }
            if let Err(error) = self.look_on().await {
                debug!(%error, "partitions were not told that somebody looks on");
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.lines.iter().map(|(_, line)| line.heard.len()).sum::<usize>() == self.partitions.len()
    }

    /// Whether a partition is held by another than the one that is heard.
    async fn moved(&self) {
        match self.store.topology() {
            Topology::One(server) => match self.lines.first() {
                Some((address, _)) => server.place().left(address).await,
                None => std::future::pending().await,
            },
            Topology::Cluster(cluster) => {
                let mut map = cluster.map();
                if map.wait_for(|map| self.is_elsewhere(map)).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    fn is_elsewhere(&self, map: &ClusterMap) -> bool {
        let mut heard =
            self.lines.iter().flat_map(|(at, line)| line.heard.iter().map(move |place| (at, *place)));
        heard.any(|(at, place)| {
            map.owner(self.partitions[place].slot).is_some_and(|owner| *owner != at.endpoint())
        })
    }

    /// All lines anew, until there are some.
    async fn begin_anew(&mut self) {
        self.queue.lose_line();
        let mut wait = FIRST_WAIT;
        loop {
            tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
            match self.subscribe().await {
                Ok(()) => return,
                Err(error) => debug!(%error, "nobody can look on"),
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn subscribe(&mut self) -> Result<()> {
        self.lines.clear();
        self.ended = Arc::default();
        for (address, places) in self.holders().await? {
            let (queue, ended) = (self.queue.clone(), self.ended.clone());
            let hear = move |heard| match heard {
                Overheard::Told(place, message) => queue.hear(place, message),
                Overheard::Ended => ended.notify_one(),
            };
            let line = listen(&address, &self.partitions, &places, hear).await?;
            self.lines.push((address, line));
        }
        Ok(())
    }

    /// Where partitions are held; those that nobody has are left out.
    async fn holders(&self) -> Result<Vec<(Address, Vec<usize>)>> {
        match self.store.topology() {
            Topology::One(server) => {
                Ok(vec![(server.place().find().await?, (0..self.partitions.len()).collect())])
            }
            Topology::Cluster(cluster) => {
                cluster.refresh().await?;
                let map = cluster.map().borrow().clone();
                let mut holders = BTreeMap::<_, Vec<usize>>::new();
                for (place, at) in self.partitions.iter().enumerate() {
                    if let Some(owner) = map.owner(at.slot) {
                        holders.entry(owner.clone()).or_default().push(place);
                    }
                }
                let address = |(owner, places)| (cluster.server(&owner).place().present(), places);
                Ok(holders.into_iter().map(address).collect())
            }
        }
    }

    /// Tells all partitions that somebody looks on; an error where none would hear of it. One that is not there is told
    /// once it is.
    async fn look_on(&self) -> Result<()> {
        let (mut refused, mut told) = (None, false);
        for some in self.partitions.chunks(TOLD) {
            let asked = some.iter().map(|at| self.store.look_on(at, AHEAD_MS));
            for answer in join_all(asked).await {
                match answer {
                    Err(error) if error.code() != Some("NOMETA") => refused = Some(error),
                    _ => told = true,
                }
            }
        }
        match refused {
            Some(error) if !told => Err(error),
            _ => Ok(()),
        }
    }
}
