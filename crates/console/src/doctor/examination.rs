//! The examination of one server: its address, its state and its findings.

use keylapse::inside::ClientInside as _;
use std::collections::HashMap;

use keylapse_connection::{Cmd, Value, cmd};

use crate::connection::{Address, Endpoint, Endpoints, Server};
use crate::error::Result;
use crate::escape::escape_line;
use crate::text::quoted;
use crate::wire::names::tag_of;
use keylapse::Client;

use super::codes::Code;
use super::report::{Finding, Lateness};
use super::rights::MissingRight;
use super::service::{Service, UNNAMED};
use super::settings::Info;
use super::time::Clocks;

/// The examination of one server.
pub(super) struct ServerExamination {
    pub(super) server: Server,
    /// Host and port.
    name: String,
    /// The start of a `redis-cli` command line for the server.
    pub(super) cli: String,
    /// The user's name from the URL, or `default`.
    pub(super) user: String,
    pub(super) namespace: String,
    pub(super) db: i64,
    pub(super) asked: ServerKind,
    /// The name of the primary in a URL of sentinels.
    pub(super) primary: Option<String>,
    /// A slot that the server holds, or `None` for a replica.
    slot: Option<u16>,
    /// A random number in the names of this run's keys.
    run: u32,
    pub(super) info: Info,
    /// The answer to `CONFIG GET`, or `None` if the user may not send it.
    pub(super) settings: Option<HashMap<String, String>>,
    /// True if the server refuses `CONFIG` as an unknown command.
    pub(super) has_no_config: bool,
    pub(super) refusals: Vec<MissingRight>,
    /// The clocks at the start of the examination.
    pub(super) clocks: Option<Clocks>,
    /// True if the server fits the URL and answers calls for keys.
    pub(super) serves: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) lateness: Lateness,
}

/// The kind of server that the URL expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// A single primary, or a replica of it.
    Server,
    /// A node that the cluster names.
    Node,
    /// A node that only the URL names.
    Seed,
    Sentinel,
}

impl ServerExamination {
    fn new(client: &Client, server: Server, slot: Option<u16>, run: u32) -> Self {
        let address = server.last_address();
        let of_cluster = client.store().topology().is_cluster();
        Self {
            name: address.endpoint().to_string(),
            cli: cli(&address),
            user: address.options().login.user.as_deref().unwrap_or("default").to_owned(),
            namespace: client.prefix().to_owned(),
            db: address.db(),
            asked: if of_cluster { ServerKind::Node } else { ServerKind::Server },
            primary: None,
            server,
            slot,
            run,
            info: Info::default(),
            settings: None,
            has_no_config: false,
            refusals: Vec::new(),
            clocks: None,
            serves: false,
            findings: Vec::new(),
            lateness: Lateness::default(),
        }
    }

    /// Returns all servers that are known without asking primaries for replicas. Asks sentinels for their primary.
    pub(super) async fn for_known_servers(client: &Client) -> Result<Vec<Self>> {
        let (run, mut cases) = (rand::random(), Vec::new());
        for (server, slot) in client.store().topology().servers().await? {
            server.find().await?;
            cases.push(Self::new(client, server, slot, run));
        }
        Ok(cases)
    }

    /// Returns the servers or sentinels in the URL.
    pub(super) fn for_url_endpoints(client: &Client) -> Vec<Self> {
        let target = client.store().target();
        let (asked, primary) = match &target.endpoints {
            Endpoints::One(_) => (ServerKind::Server, None),
            Endpoints::Cluster(_) => (ServerKind::Seed, None),
            Endpoints::Sentinel { master, .. } => (ServerKind::Sentinel, Some(escape_line(master, 100))),
        };
        let named = |endpoint: &Endpoint| {
            let (server, primary) = (fixed(client, endpoint.clone(), asked), primary.clone());
            Self { asked, primary, db: target.options.db, ..Self::new(client, server, None, 0) }
        };
        target.endpoints.all().iter().map(named).collect()
    }

    /// Returns the primary that this sentinel names.
    pub(super) async fn for_named_primary(&self, client: &Client) -> Option<Self> {
        let target = client.store().target();
        let Endpoints::Sentinel { master, .. } = &target.endpoints else { return None };
        let ask = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).clone();
        let named = self.server.call("asking a sentinel", &ask).await.ok()?;
        let (host, port) = keylapse_connection::from_redis_value::<(String, u16)>(named).ok()?;
        let endpoint = Endpoint::of(&host, port, &self.address().endpoint())?;
        Some(Self::new(client, fixed(client, endpoint, ServerKind::Server), Some(0), 0))
    }

    /// Returns the replicas that this primary names. In a cluster they are known already. A program's own stream reaches
    /// only one server.
    pub(super) fn replicas(&self, client: &Client) -> Vec<Self> {
        if self.is_of_cluster() || client.store().target().options.streams.is_some() {
            return Vec::new();
        }
        let (asked, named) = (self.address().endpoint(), self.info.replicas());
        let places = named.iter().filter_map(|line| Endpoint::of(&line.host, line.port, &asked));
        let replica =
            |endpoint| Self::new(client, fixed(client, endpoint, ServerKind::Server), None, self.run);
        places.map(replica).collect()
    }

    /// Returns whether the URL expects a node of a cluster.
    pub(super) fn is_of_cluster(&self) -> bool {
        matches!(self.asked, ServerKind::Node | ServerKind::Seed)
    }

    /// Returns whether the server was found as a replica.
    pub(super) fn is_known_replica(&self) -> bool {
        self.slot.is_none()
    }

    /// Returns whether the server is a primary and holds slots.
    pub(super) fn takes_writes(&self) -> bool {
        !self.info.is_replica() && !self.is_known_replica()
    }

    /// Returns a setting, if the user may read settings.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns a numeric setting, if the user may read settings.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    /// Returns the service that runs the server, if one is recognized.
    pub(super) fn service(&self) -> Option<&'static Service> {
        let named = || Service::at(&self.address().endpoint()).or_else(|| Service::in_info(&self.info));
        named().or(self.has_no_config.then_some(&UNNAMED))
    }
}

impl ServerExamination {
    pub(super) fn address(&self) -> Address {
        self.server.last_address()
    }

    pub(super) fn is_over_tls(&self) -> bool {
        self.address().is_over_tls()
    }

    /// Returns a URL of this server, with `kind` after `redis` in the scheme, and with this path.
    pub(super) fn url(&self, kind: &str, tls: bool, path: &str) -> String {
        let scheme = if tls { "rediss" } else { "redis" };
        match self.address().endpoint() {
            Endpoint::Unix(socket) => quoted(&format!("unix://{}", socket.to_string_lossy())),
            endpoint => as_word(&format!("{scheme}{kind}://{endpoint}/{path}")),
        }
    }

    /// Returns the part after `redis` in the scheme of the user's URL.
    pub(super) fn url_scheme_suffix(&self) -> &'static str {
        match self.asked {
            ServerKind::Server => "",
            ServerKind::Node | ServerKind::Seed => "+cluster",
            ServerKind::Sentinel => "+sentinel",
        }
    }

    /// Returns the path of the user's URL.
    pub(super) fn path_there(&self) -> String {
        match &self.primary {
            Some(name) if self.db == 0 => name.clone(),
            Some(name) => format!("{name}/{}", self.db),
            None => self.path(),
        }
    }

    /// Returns the path that selects the database in a URL without sentinels.
    pub(super) fn path(&self) -> String {
        if self.db == 0 { String::new() } else { self.db.to_string() }
    }

    /// Returns a key in the namespace that this server holds and that no other program uses.
    pub(super) fn key(&self, what: &str) -> String {
        // Only the tags of heartbeat keys cover every slot.
        let tag = tag_of(self.slot.unwrap_or_default());
        format!("{}:doctor:{{heartbeat/{tag}}}:{}:{what}", self.namespace, self.run)
    }

    /// Sends a command. The inner result is the server's answer. The outer error means that no answer arrived, which ends
    /// the examination.
    pub(super) async fn ask(&self, doing: &str, command: &Cmd) -> Result<Result<Value>> {
        answered(self.server.call(doing, command).await)
    }

    /// Sends several commands in one request, as [`ask`](Self::ask) sends one.
    pub(super) async fn ask_each(
        &self,
        doing: &str,
        commands: &keylapse_connection::Pipeline,
    ) -> Result<Vec<Result<Value>>> {
        self.server.call_each(doing, commands).await.into_iter().map(answered).collect()
    }
}

impl ServerExamination {
    pub(super) fn add_finding(&mut self, code: &Code, observed: impl Into<String>) {
        self.add_finding_with(code, observed, &[]);
    }

    /// Adds a finding. `names` has the values of placeholders in the fix.
    pub(super) fn add_finding_with(
        &mut self,
        code: &Code,
        observed: impl Into<String>,
        names: &[(&str, &str)],
    ) {
        let user = quoted(&self.user);
        let own = [("cli", &*self.cli), ("user", &user), ("namespace", &self.namespace)];
        let mut finding = Finding::new(code, Some(&self.name), observed, &[&own, names].concat());
        if let Some(service) = self.service() {
            finding.fix = finding.fix.and_then(|line| service.instead(&line));
        }
        self.findings.push(finding);
    }

    /// Returns whether a finding has one of these codes.
    pub(super) fn has_finding(&self, codes: &[Code]) -> bool {
        self.findings.iter().any(|finding| codes.iter().any(|code| code.code == finding.code))
    }
}

/// Separates answers from connection errors. An error with a code is an answer of the server.
pub(super) fn answered<T>(answer: Result<T>) -> Result<Result<T>> {
    match answer {
        Err(error) if error.code().is_none() => Err(error),
        answer => Ok(answer),
    }
}

/// Quotes a URL as one word of a shell.
pub(super) fn as_word(url: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:/+%".contains(&byte);
    if url.bytes().all(is_plain) { url.to_owned() } else { quoted(url) }
}

fn fixed(client: &Client, endpoint: Endpoint, asked: ServerKind) -> Server {
    let target = client.store().target();
    let access = if asked == ServerKind::Sentinel { &target.sentinel_options } else { &target.options };
    Server::at(Address::at(endpoint, access.clone()), client.answers_within())
}

/// Returns the start of a `redis-cli` command line, without user, password and command.
fn cli(address: &Address) -> String {
    let tls = if address.is_over_tls() { " --tls" } else { "" };
    match address.endpoint() {
        Endpoint::Tcp { host, port } => format!("redis-cli -h {host} -p {port}{tls}"),
        Endpoint::Unix(path) => format!("redis-cli -s {}", quoted(&path.to_string_lossy())),
    }
}
