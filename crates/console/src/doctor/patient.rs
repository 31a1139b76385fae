//! The servers that are looked at, and how each is called.

use keylapse::inside::ClientInside as _;
use keylapse_connection::cmd;

use crate::connection::{Address, Endpoint, Endpoints, Place, Server};
use crate::error::Result;
use crate::escape::plain;
use crate::text::quoted;
use crate::wire::canary_tags::tag_of;
use keylapse::Client;

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
    pub(super) asked: Asked,
    /// The URL's name of the primary that a sentinel watches.
    pub(super) primary: Option<String>,
    /// A slot that it holds; none of one that is known to be a replica.
    slot: Option<u16>,
    /// Tells the names of this run from those of another.
    run: u32,
}

/// The kind of server that the URL takes it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The only one, or the replica of that.
    Server,
    /// One of a cluster, which has named it.
    Node,
    /// One of a cluster, of which nothing is known.
    Seed,
    Sentinel,
}

impl Patient {
    fn new(client: &Client, server: Server, slot: Option<u16>, run: u32) -> Self {
        let address = server.place().present();
        let of_cluster = client.store().topology().are_many();
        Self {
            name: address.endpoint().to_string(),
            cli: cli(&address),
            user: address.user().unwrap_or("default").to_owned(),
            namespace: client.prefix().to_string(),
            db: address.db(),
            asked: if of_cluster { Asked::Node } else { Asked::Server },
            primary: None,
            server,
            slot,
            run,
        }
    }

    /// A server or sentinel that the URL names, by itself.
    fn named(client: &Client, endpoint: &Endpoint) -> Self {
        let target = client.store().target();
        let (asked, access) = match &target.endpoints {
            Endpoints::One(_) => (Asked::Server, &target.access),
            Endpoints::Cluster(_) => (Asked::Seed, &target.access),
            Endpoints::Sentinel { .. } => (Asked::Sentinel, &target.sentinel_access),
        };
        let primary = match &target.endpoints {
            Endpoints::Sentinel { master, .. } => Some(plain(master, 100)),
            _ => None,
        };
        let place = Place::Fixed(Address::at(endpoint.clone(), access.clone()));
        Self {
            asked,
            primary,
            db: target.access.db,
            ..Self::new(client, Server::new(&place, client.answers_within()), None, 0)
        }
    }

    /// Returns whether it is one of a cluster, as far as the URL says.
    pub(super) fn is_of_cluster(&self) -> bool {
        matches!(self.asked, Asked::Node | Asked::Seed)
    }

    /// Returns a URL of the same server with this part behind `redis` in its scheme, and this path.
    pub(super) fn url(&self, kind: &str, tls: bool, path: &str) -> String {
        let scheme = if tls { "rediss" } else { "redis" };
        match self.address().endpoint() {
            Endpoint::Unix(socket) => quoted(&format!("unix://{}", socket.to_string_lossy())),
            endpoint => as_word(&format!("{scheme}{kind}://{endpoint}/{path}")),
        }
    }

    /// Returns the part behind `redis` in the scheme of the URL that names it.
    pub(super) fn kind(&self) -> &'static str {
        match self.asked {
            Asked::Server => "",
            Asked::Node | Asked::Seed => "+cluster",
            Asked::Sentinel => "+sentinel",
        }
    }

    /// Returns the path of that URL.
    pub(super) fn path_there(&self) -> String {
        match &self.primary {
            Some(name) if self.db == 0 => name.clone(),
            Some(name) => format!("{name}/{}", self.db),
            None => self.path(),
        }
    }

    /// Returns the path of a URL that names the same database.
    pub(super) fn path(&self) -> String {
        if self.db == 0 { String::new() } else { self.db.to_string() }
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
    for (server, slot) in client.store().topology().servers().await? {
        server.place().find().await?;
        patients.push(Patient::new(client, server, slot, run));
    }
    Ok(patients)
}

/// The servers or sentinels that the URL names, for where none of them names the others.
pub(super) fn named(client: &Client) -> Vec<Patient> {
    let all = client.store().target().endpoints.all();
    all.iter().map(|endpoint| Patient::named(client, endpoint)).collect()
}

/// The primary that a sentinel names.
pub(super) async fn behind(client: &Client, sentinel: &Patient) -> Option<Patient> {
    let target = client.store().target();
    let Endpoints::Sentinel { master, .. } = &target.endpoints else { return None };
    let ask = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).clone();
    let named = sentinel.server.seat().call("asking a sentinel", &ask).await.ok()?;
    let (host, port) = keylapse_connection::from_redis_value::<(String, u16)>(named).ok()?;
    let endpoint = Endpoint::of(&host, port, &sentinel.address().endpoint())?;
    let place = Place::Fixed(Address::at(endpoint, target.access.clone()));
    Some(Patient::new(client, Server::new(&place, client.answers_within()), Some(0), 0))
}

/// The replicas that a primary names. Of a cluster they are known already, and streams of a program lead to one server.
pub(super) fn replicas_of(client: &Client, primary: &Patient, info: &Info) -> Vec<Patient> {
    let access = client.store().target().access.clone();
    if primary.is_of_cluster() || access.streams.is_some() {
        return Vec::new();
    }
    let asked = primary.address().endpoint();
    let named = info.replicas();
    let places = named.iter().filter_map(|line| Endpoint::of(&line.host, line.port, &asked));
    let servers = places.map(|endpoint| {
        Server::new(&Place::Fixed(Address::at(endpoint, access.clone())), client.answers_within())
    });
    servers.map(|server| Patient::new(client, server, None, primary.run)).collect()
}

/// Returns a URL as one word of a shell.
pub(super) fn as_word(url: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:/+%".contains(&byte);
    if url.bytes().all(is_plain) { url.to_owned() } else { quoted(url) }
}

/// A command line of `redis-cli` up to where the command begins, without user and password.
fn cli(address: &Address) -> String {
    let tls = if address.is_over_tls() { " --tls" } else { "" };
    match address.endpoint() {
        Endpoint::Tcp { host, port } => format!("redis-cli -h {host} -p {port}{tls}"),
        Endpoint::Unix(path) => format!("redis-cli -s {}", quoted(&path.to_string_lossy())),
    }
}
