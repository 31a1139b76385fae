//! The servers that a URL or a program names, read and checked before anything is connected.

use std::env;
use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::address::{Access, Endpoint};
use crate::error::{Error, Result};
use crate::login::{Environment, Login, OF_SENTINELS, OF_SERVERS, Password};
use crate::stream::{Home, Streams};
use crate::tls::Tls;

/// The port of a server that says none.
pub const SERVER_PORT: u16 = 6379;
/// The port of a sentinel that says none.
pub const SENTINEL_PORT: u16 = 26379;

/// Servers, and how one gets into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where they are, or who names them.
    pub endpoints: Endpoints,
    /// To servers.
    pub access: Arc<Access>,
    /// To sentinels: a login of their own, and the same TLS.
    pub sentinel_access: Arc<Access>,
}

/// Whom to ask first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// One server.
    One(Endpoint),
    /// Nodes of a cluster, of which any may be down.
    Cluster(Vec<Endpoint>),
    /// The server that sentinels name under this name.
    Sentinel {
        /// The sentinels, of which any may be down.
        sentinels: Vec<Endpoint>,
        /// As the sentinels call it.
        master: String,
    },
}

impl Target {
    /// Servers of which nothing else was said.
    pub fn of(endpoints: Endpoints) -> Self {
        Self { endpoints, access: Arc::default(), sentinel_access: Arc::default() }
    }

    /// Reads a URL, without the checks of the whole.
    ///
    /// # Errors
    /// When the URL cannot be read; the message names the part.
    pub fn read(url: &str) -> Result<Self> {
        read(url)
    }

    /// Reads a URL and checks it.
    ///
    /// # Errors
    /// When the URL cannot be read, or says what cannot be.
    pub fn parse(url: &str) -> Result<Self> {
        Self::read(url)?.checked()
    }

    /// Changes how one gets into servers.
    pub fn access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.access)
    }

    /// Changes how one gets into sentinels.
    pub fn sentinel_access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.sentinel_access)
    }

    /// Refuses what does not fit together, and adds what the environment says.
    ///
    /// # Errors
    /// When something does not fit, by the part at fault.
    pub fn checked(self) -> Result<Self> {
        self.checked_within(&|name| env::var_os(name), cfg!(feature = "tls"))
    }

    fn checked_within(self, environment: Environment<'_>, has_tls: bool) -> Result<Self> {
        self.check_endpoints()?;
        self.check_tls(has_tls)?;
        let is_sentinel = matches!(self.endpoints, Endpoints::Sentinel { .. });
        let own = &self.sentinel_access.login;
        if !is_sentinel && *own != Login::default() {
            return Err(Error::invalid("a user or a password of sentinels, but there are no sentinels"));
        }
        let login = self.access.login.clone().with_password_of(OF_SERVERS, environment)?;
        let own = match is_sentinel {
            true => own.clone().with_password_of(OF_SENTINELS, environment)?,
            false => Login::default(),
        };
        let access = Access { login, home: Home::OwnThread, ..(*self.access).clone() };
        let sentinel_access = Access { login: own, db: 0, ..access.clone() };
        Ok(Self { access: access.into(), sentinel_access: sentinel_access.into(), ..self })
    }

    /// The same, over streams of the application, which lead to one server: to several there is no way then.
    pub fn over(&self, streams: Streams) -> Self {
        let leads_there = matches!(self.endpoints, Endpoints::One(_));
        let streams = if leads_there {
            streams
        } else {
            Streams::to_none("streams lead to one server, and these are several")
        };
        let access = Access { streams: Some(streams), ..(*self.access).clone() };
        Self { access: Arc::new(access), ..self.clone() }
    }

    /// The same, whose connections live there.
    pub fn at_home(&self, home: Home) -> Self {
        let at = |access: &Arc<Access>| Arc::new(Access { home, ..(**access).clone() });
        Self { access: at(&self.access), sentinel_access: at(&self.sentinel_access), ..self.clone() }
    }

    fn check_endpoints(&self) -> Result<()> {
        if self.endpoints.all().is_empty() {
            return Err(Error::invalid("the list of hosts is empty"));
        }
        match &self.endpoints {
            Endpoints::Sentinel { master, .. } if master.is_empty() => Err(Error::invalid(
                "the name of the master is missing: the one by which the sentinels know it, as in \
                 redis+sentinel://h1,h2/mymaster",
            )),
            Endpoints::Sentinel { master, .. } if master.contains(|c: char| c.is_control() || c == ' ') => {
                Err(Error::invalid("the master's name has a space or a control character"))
            }
            _ => Ok(()),
        }
    }

    fn check_tls(&self, has_tls: bool) -> Result<()> {
        let Some(tls) = &self.access.tls else { return Ok(()) };
        if self.endpoints.all().iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
            return Err(Error::invalid(
                "TLS over a Unix socket: leave TLS out, the socket is this machine's",
            ));
        }
        if !has_tls {
            return Err(Error::invalid(
                "TLS was asked for, and this program is built without it: build keylapse with its feature `tls` \
                 (cargo add keylapse --features tls); it never falls back to plain TCP",
            ));
        }
        tls.check()
    }
}

impl Endpoints {
    /// Returns those that were named: servers, nodes or sentinels.
    pub fn all(&self) -> &[Endpoint] {
        match self {
            Self::One(endpoint) => std::slice::from_ref(endpoint),
            Self::Cluster(seeds) => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

impl fmt::Display for Target {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoints)?;
        match &self.endpoints {
            Endpoints::One(_) => {}
            Endpoints::Cluster(_) => f.write_str(" (cluster)")?,
            Endpoints::Sentinel { master, .. } => write!(f, " (master {master} of sentinels)")?,
        }
        match self.access.db {
            0 => Ok(()),
            db => write!(f, ", database {db}"),
        }
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, endpoint) in self.all().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{endpoint}")?;
        }
        Ok(())
    }
}

// URLs of servers, read early and strictly. What is refused is named, and never quoted: a part that is misread may be a
// part of the password.

const SCHEMES: &str = "redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel://, \
                       rediss+sentinel:// (or valkey in place of redis), unix://";

/// Returns the text that is meant; a `%` that no two hexadecimal digits follow is itself. `None` if it is not UTF-8.
fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

/// What a scheme stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Cluster,
    Sentinel,
    Unix,
}

/// Names in the query, here and in the URLs of other programs. Any other may be anything, and is not shown.
const NAMES: [&str; 30] = [
    "protocol",
    "sentinel_user",
    "sentinel_password",
    "db",
    "database",
    "user",
    "username",
    "pass",
    "password",
    "tls",
    "ssl",
    "insecure",
    "ca",
    "ca_cert",
    "ca_file",
    "cert",
    "cert_file",
    "key",
    "key_file",
    "ssl_ca_certs",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_keyfile",
    "server_name",
    "timeout",
    "connect_timeout",
    "socket_timeout",
    "max_connections",
    "pool_size",
    "client_name",
];

fn read(url: &str) -> Result<Target> {
    let url = url.trim();
    let unknown = || Error::invalid(format!("the server URL begins with no scheme that is known: {SCHEMES}"));
    let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
    let (kind, tls) = scheme_of(&scheme.to_ascii_lowercase()).ok_or_else(unknown)?;
    if rest.contains('#') {
        return Err(of_url(
            "has a `#`, and nothing may follow one: write %23 for it in a password or a path",
        ));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut target = match (kind, rest.strip_prefix("//")) {
        (Kind::Unix, _) => unix(rest)?,
        (_, None) => return Err(of_url("has no `//` after its scheme")),
        (_, Some(rest)) => tcp(kind, rest).map_err(|error| with_hint(error, rest, query))?,
    };
    target.access_mut().tls = tls.then(Tls::default);
    read_query(&mut target, kind, query)?;
    Ok(target)
}

/// An `@` behind the host is mostly that of a login, in which something stands that ends it too early.
fn with_hint(error: Error, rest: &str, query: &str) -> Error {
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    match path.contains('@') || query.contains('@') {
        true => Error::invalid(format!("{error}; a `/` or `?` in a password is written %2F or %3F")),
        false => error,
    }
}

fn of_url(problem: &str) -> Error {
    Error::invalid(format!("the server URL {problem}"))
}

/// What it stands for, and whether with TLS.
fn scheme_of(scheme: &str) -> Option<(Kind, bool)> {
    if matches!(scheme, "unix" | "redis+unix" | "valkey+unix") {
        return Some((Kind::Unix, false));
    }
    let (server, kind) = match scheme.split_once('+') {
        None => (scheme, Kind::One),
        Some((server, "cluster")) => (server, Kind::Cluster),
        Some((server, "sentinel")) => (server, Kind::Sentinel),
        Some(_) => return None,
    };
    match server {
        "redis" | "valkey" => Some((kind, false)),
        "rediss" | "valkeys" => Some((kind, true)),
        _ => None,
    }
}

fn unix(rest: &str) -> Result<Target> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    let path = decode(path).ok_or_else(|| of_url("has a path that is not UTF-8"))?;
    if !path.starts_with('/') || path.contains('\0') {
        return Err(of_url("has no absolute path: unix:///path/of/the.sock is expected"));
    }
    Ok(Target::of(Endpoints::One(Endpoint::Unix(path.into()))))
}

/// `[user[:password]@]host[,host…][/path]`
fn tcp(kind: Kind, rest: &str) -> Result<Target> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (read_login(login)?, hosts),
        None => (Login::default(), authority),
    };
    refuse_schemes_of_hosts(hosts, path)?;
    let segments: Vec<_> = path.trim_matches('/').split('/').collect();
    let (master, db) = match (kind, &*segments) {
        (Kind::Sentinel, [master]) => (*master, ""),
        (Kind::Sentinel, [master, db]) => (*master, *db),
        (Kind::One | Kind::Cluster, [db]) => ("", *db),
        _ => return Err(of_url("has too many parts in its path")),
    };
    let endpoints = match kind {
        Kind::Cluster => Endpoints::Cluster(read_hosts(hosts, SERVER_PORT)?),
        Kind::Sentinel => {
            let master = decode(master).ok_or_else(|| of_url("has a master's name that is not UTF-8"))?;
            Endpoints::Sentinel { sentinels: read_hosts(hosts, SENTINEL_PORT)?, master }
        }
        Kind::One | Kind::Unix => {
            let server = Endpoint::read(hosts, SERVER_PORT);
            Endpoints::One(server.map_err(|problem| of_url(&format!("names no server: {problem}")))?)
        }
    };
    let mut target = Target::of(endpoints);
    (target.access_mut().login, target.access_mut().db) = (login, read_db(db)?);
    Ok(target)
}

fn read_login(text: &str) -> Result<Login> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let part = |text: &str, what: &str| match decode(text) {
        None => Err(of_url(&format!("has a {what} that is not UTF-8"))),
        Some(text) => Ok((!text.is_empty()).then(|| text.into())),
    };
    Ok(Login { user: part(user, "user")?, password: part(password, "password")?.map(Password::Said) })
}

fn read_hosts(text: &str, default_port: u16) -> Result<Vec<Endpoint>> {
    if text.is_empty() {
        return Err(of_url("has an empty list of hosts"));
    }
    let hosts = text.split(',').enumerate().map(|(index, host)| {
        let problem = |problem| of_url(&format!("is wrong in host {} of its list: {problem}", index + 1));
        Endpoint::read(host, default_port).map_err(problem)
    });
    hosts.collect()
}

/// `redis+cluster://h1,rediss://h2`: whoever writes that wants TLS for one of them, or for all.
fn refuse_schemes_of_hosts(hosts: &str, path: &str) -> Result<()> {
    let last = hosts.rsplit(',').next().and_then(|host| host.strip_suffix(':')).unwrap_or_default();
    if path.starts_with('/') && scheme_of(&last.to_ascii_lowercase()).is_some() {
        return Err(of_url(
            "has a host with a scheme of its own: the scheme at the beginning is that of all, with TLS or without",
        ));
    }
    Ok(())
}

fn read_db(text: &str) -> Result<i64> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    number.map(i64::from).ok_or_else(|| of_url("has a database that is no number"))
}

fn read_query(target: &mut Target, kind: Kind, query: &str) -> Result<()> {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    for (index, parameter) in parameters.enumerate() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // A `+` is a space there.
        let value =
            decode(&value.replace('+', " ")).ok_or_else(|| of_url("has a query that is not UTF-8"))?;
        let said = || (!value.is_empty()).then(|| value.as_str().into());
        let password = || said().map(Password::Said);
        match (name, kind) {
            ("protocol", _) => target.access_mut().resp3 = read_protocol(&value)?,
            ("db", Kind::Unix) => target.access_mut().db = read_db(&value)?,
            ("user", Kind::Unix) => target.access_mut().login.user = said(),
            ("pass", Kind::Unix) => target.access_mut().login.password = password(),
            ("sentinel_user", Kind::Sentinel) => target.sentinel_access_mut().login.user = said(),
            ("sentinel_password", Kind::Sentinel) => target.sentinel_access_mut().login.password = password(),
            _ => return Err(unknown_parameter(name, index, kind)),
        }
    }
    Ok(())
}

fn read_protocol(value: &str) -> Result<bool> {
    match value {
        "2" | "resp2" => Ok(false),
        "3" | "resp3" => Ok(true),
        _ => Err(of_url("has a `protocol` that is neither resp2 nor resp3")),
    }
}

fn unknown_parameter(name: &str, index: usize, kind: Kind) -> Error {
    let known = match kind {
        Kind::One | Kind::Cluster => "protocol",
        Kind::Sentinel => "protocol, sentinel_user, sentinel_password",
        Kind::Unix => "protocol, db, user, pass",
    };
    let named = match NAMES.iter().find(|known| **known == name) {
        Some(name) => format!("has the parameter `{name}`"),
        None => format!("has an unknown parameter (number {} after its `?`)", index + 1),
    };
    let tls = match kind {
        Kind::Unix => "",
        _ => "; files of TLS are set with Tls, and whether there is TLS by the scheme",
    };
    of_url(&format!("{named}; here it can have: {known}{tls}. A `?` in a password is written %3F"))
}

#[cfg(test)]
mod tests;
