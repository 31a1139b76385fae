//! The servers that are looked at, and how each is called.

use crate::client::Client;
use crate::connection::{Address, Endpoint, Place, Server};
use crate::console::text::quoted;
use crate::error::Result;
use crate::wire::canary_tags::tag_of;

use super::info::Info;

/// One server.
#[derive(Clone)]
pub(super) struct Patient {
    pub(super) server: Server,
    /// Host and port.
    pub(super) name: String,
    /// How an administrator reaches it.
    pub(super) cli: String,
    /// Who we are there, as far as the URL says.
    pub(super) user: String,
    pub(super) namespace: String,
    pub(super) db: i64,
    /// Whether it is one of a cluster.
    pub(super) of_cluster: bool,
    /// A slot that it holds; none of one that is known to be a replica.
    slot: Option<u16>,
    /// Tells the names of this run from those of another.
    run: u32,
}

impl Patient {
    fn new(client: &Client, server: Server, slot: Option<u16>, run: u32) -> Self {
        let address = server.place().present();
        Self {
            name: address.endpoint().to_string(),
            cli: cli(&address),
            user: address.user().unwrap_or("default").to_owned(),
            namespace: client.namespace.to_string(),
            db: address.db(),
            of_cluster: client.store.topology().are_many(),
            server,
            slot,
            run,
        }
    }

    /// Whether it was taken for a replica before it was asked.
    pub(super) fn is_known_replica(&self) -> bool {
        self.slot.is_none()
    }

    /// A name in our namespace that lies there, and is nobody else's.
    pub(super) fn key(&self, what: &str) -> String {
        // Those of canaries are the only tags of which there is one for each slot.
        let tag = tag_of(self.slot.unwrap_or_default());
        format!("{}:doctor:{{canary/{tag}}}:{}:{what}", self.namespace, self.run)
    }

    pub(super) fn address(&self) -> Address {
        self.server.place().present()
    }
}

/// All servers that are known without asking the primaries. Sentinels are asked who theirs is.
pub(super) async fn known(client: &Client) -> Result<Vec<Patient>> {
    let (run, mut patients) = (rand::random(), Vec::new());
    for (server, slot) in client.store.topology().servers().await? {
        server.place().find().await?;
        patients.push(Patient::new(client, server, slot, run));
    }
    Ok(patients)
}

/// The replicas that a primary names. Of a cluster they are known already, and streams of a program lead to one server.
pub(super) fn replicas_of(client: &Client, primary: &Patient, info: &Info) -> Vec<Patient> {
    let access = client.store.target().access.clone();
    if primary.of_cluster || access.streams.is_some() {
        return Vec::new();
    }
    let asked = primary.address().endpoint();
    let named = info.replicas();
    let places = named.iter().filter_map(|line| Endpoint::of(&line.host, line.port, &asked));
    let servers = places.map(|endpoint| {
        Server::new(&Place::Fixed(Address::at(endpoint, access.clone())), client.answer_within)
    });
    servers.map(|server| Patient::new(client, server, None, primary.run)).collect()
}

/// A command line of `redis-cli` up to where the command begins, without user and password.
fn cli(address: &Address) -> String {
    let tls = if address.is_over_tls() { " --tls" } else { "" };
    match address.endpoint() {
        Endpoint::Tcp { host, port } => format!("redis-cli -h {host} -p {port}{tls}"),
        Endpoint::Unix(path) => format!("redis-cli -s {}", quoted(&path.to_string_lossy())),
    }
}
