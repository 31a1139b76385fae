//! The servers that a URL or a program names, parsed and checked before any connection.

use std::env;
use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::address::{ConnectOptions, Endpoint};
use crate::error::{Error, Result};
use crate::login::{Environment, Login, Password, SENTINEL_PASSWORD_VARIABLE, SERVER_PASSWORD_VARIABLE};
use crate::stream::{ConnectionRuntime, Streams};
use crate::tls::Tls;

/// The default port of a server.
pub const SERVER_PORT: u16 = 6379;
/// The default port of a sentinel.
pub const SENTINEL_PORT: u16 = 26379;

/// Servers, and the options for connections to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The addresses of the servers, or of the sentinels that name them.
    pub endpoints: Endpoints,
    /// The options for connections to servers.
    pub options: Arc<ConnectOptions>,
    /// The options for connections to sentinels, with their own login and the TLS settings of the servers.
    pub sentinel_options: Arc<ConnectOptions>,
}

/// The addresses that are contacted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// One server.
    One(Endpoint),
    /// Some nodes of a cluster. One that answers is enough.
    Cluster(Vec<Endpoint>),
    /// The primary that sentinels watch under a name.
    Sentinel {
        /// Some of the sentinels. One that answers is enough.
        sentinels: Vec<Endpoint>,
        /// The name of the primary in the configuration of the sentinels.
        master: String,
    },
}

impl Target {
    /// Creates a target with default options.
    pub fn of(endpoints: Endpoints) -> Self {
        Self { endpoints, options: Arc::default(), sentinel_options: Arc::default() }
    }

    /// Parses a URL, without the checks of [`checked`](Self::checked).
    ///
    /// # Errors
    /// The URL is invalid. The message names the invalid part.
    pub fn read(url: &str) -> Result<Self> {
        read(url)
    }

    /// Parses and checks a URL, and adds passwords of the environment.
    ///
    /// # Errors
    /// The URL is invalid, or its parts contradict each other.
    pub fn parse(url: &str) -> Result<Self> {
        Self::read(url)?.checked()
    }

    /// Returns the options for connections to servers, to change them.
    pub fn options_mut(&mut self) -> &mut ConnectOptions {
        Arc::make_mut(&mut self.options)
    }

    /// Returns the options for connections to sentinels, to change them.
    pub fn sentinel_options_mut(&mut self) -> &mut ConnectOptions {
        Arc::make_mut(&mut self.sentinel_options)
    }

    /// Checks the settings, and adds passwords of the environment.
    ///
    /// # Errors
    /// Some settings contradict each other, or this program is built without TLS. The message names the setting.
    pub fn checked(self) -> Result<Self> {
        self.checked_within(&|name| env::var_os(name), cfg!(feature = "tls"))
    }

    fn checked_within(self, environment: Environment<'_>, has_tls: bool) -> Result<Self> {
        self.check_endpoints()?;
        self.check_tls(has_tls)?;
        let is_sentinel = matches!(self.endpoints, Endpoints::Sentinel { .. });
        let own = &self.sentinel_options.login;
        if !is_sentinel && *own != Login::default() {
            return Err(Error::invalid(
                "a user or a password of sentinels is set, but there are no sentinels",
            ));
        }
        let login = self.options.login.clone().with_password_of(SERVER_PASSWORD_VARIABLE, environment)?;
        let own = match is_sentinel {
            true => own.clone().with_password_of(SENTINEL_PASSWORD_VARIABLE, environment)?,
            false => Login::default(),
        };
        let access =
            ConnectOptions { login, runtime: ConnectionRuntime::OwnThread, ..(*self.options).clone() };
        let sentinel_access = ConnectOptions { login: own, db: 0, ..access.clone() };
        Ok(Self { options: access.into(), sentinel_options: sentinel_access.into(), ..self })
    }

    /// Returns the target over streams of the application. Streams lead to one server, so connections to a cluster or with
    /// sentinels fail then.
    pub fn with_streams(&self, streams: Streams) -> Self {
        let leads_there = matches!(self.endpoints, Endpoints::One(_));
        let streams = if leads_there {
            streams
        } else {
            Streams::to_none("streams lead to one server, but the target has several")
        };
        let access = ConnectOptions { streams: Some(streams), ..(*self.options).clone() };
        Self { options: Arc::new(access), ..self.clone() }
    }

    /// Returns the target with connections on this runtime.
    pub fn with_runtime(&self, home: ConnectionRuntime) -> Self {
        let at =
            |access: &Arc<ConnectOptions>| Arc::new(ConnectOptions { runtime: home, ..(**access).clone() });
        Self { options: at(&self.options), sentinel_options: at(&self.sentinel_options), ..self.clone() }
    }

    fn check_endpoints(&self) -> Result<()> {
        if self.endpoints.all().is_empty() {
            return Err(Error::invalid("the list of hosts is empty"));
        }
        match &self.endpoints {
            Endpoints::Sentinel { master, .. } if master.is_empty() => Err(Error::invalid(
                "the name of the master in the sentinels' configuration is missing, as in \
                 redis+sentinel://h1,h2/mymaster",
            )),
            Endpoints::Sentinel { master, .. } if master.contains(|c: char| c.is_control() || c == ' ') => {
                Err(Error::invalid("the master's name has a space or a control character"))
            }
            _ => Ok(()),
        }
    }

    fn check_tls(&self, has_tls: bool) -> Result<()> {
        let Some(tls) = &self.options.tls else { return Ok(()) };
        if self.endpoints.all().iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
            return Err(Error::invalid(
                "TLS over a Unix socket is not supported: leave out TLS, as the socket is local",
            ));
        }
        if !has_tls {
            return Err(Error::invalid(
                "TLS is set, but this program is built without it: build keylapse with its feature `tls` \
                 (cargo add keylapse --features tls); it never falls back to plain TCP",
            ));
        }
        tls.check()
    }
}

impl Endpoints {
    /// Returns all addresses: of the server, the nodes or the sentinels.
    pub fn all(&self) -> &[Endpoint] {
        match self {
            Self::One(endpoint) => std::slice::from_ref(endpoint),
            Self::Cluster(seeds) => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

impl fmt::Display for Target {
    /// Writes the target without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoints)?;
        match &self.endpoints {
            Endpoints::One(_) => {}
            Endpoints::Cluster(_) => f.write_str(" (cluster)")?,
            Endpoints::Sentinel { master, .. } => write!(f, " (master {master} of sentinels)")?,
        }
        match self.options.db {
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

// Server URLs are parsed strictly. An error names the invalid part and never quotes it, as the part may belong to the
// password.

const SCHEMES: &str = "redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel://, \
                       rediss+sentinel:// (or valkey in place of redis), unix://";

/// Decodes percent-encoding. A `%` without two hexadecimal digits stays a `%`. Returns `None` if the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

/// The kind of servers that a scheme selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Cluster,
    Sentinel,
    Unix,
}

/// Names of query parameters, here and in the URLs of other programs. Errors show only these, as an unknown name may be a
/// part of a password.
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
    let unknown = || Error::invalid(format!("the server URL has no known scheme: {SCHEMES}"));
    let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
    let (kind, tls) = scheme_of(&scheme.to_ascii_lowercase()).ok_or_else(unknown)?;
    if rest.contains('#') {
        return Err(of_url(
            "has a `#`, but cannot have a fragment: write %23 for a `#` in a password or a path",
        ));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut target = match (kind, rest.strip_prefix("//")) {
        (Kind::Unix, _) => unix(rest)?,
        (_, None) => return Err(of_url("has no `//` after its scheme")),
        (_, Some(rest)) => tcp(kind, rest).map_err(|error| with_hint(error, rest, query))?,
    };
    target.options_mut().tls = tls.then(Tls::default);
    read_query(&mut target, kind, query)?;
    Ok(target)
}

/// Adds advice if an `@` follows the host. The password then probably has an unescaped `/` or `?`.
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

/// Returns the kind of servers of a scheme, and true if it selects TLS.
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

/// Parses `[user[:password]@]host[,host…][/path]`.
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
    (target.options_mut().login, target.options_mut().db) = (login, read_db(db)?);
    Ok(target)
}

fn read_login(text: &str) -> Result<Login> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let part = |text: &str, what: &str| match decode(text) {
        None => Err(of_url(&format!("has a {what} that is not UTF-8"))),
        Some(text) => Ok((!text.is_empty()).then(|| text.into())),
    };
    Ok(Login { user: part(user, "user")?, password: part(password, "password")?.map(Password::Literal) })
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

/// Refuses URLs such as `redis+cluster://h1,rediss://h2`, which may mean TLS for one host or for all.
fn refuse_schemes_of_hosts(hosts: &str, path: &str) -> Result<()> {
    let last = hosts.rsplit(',').next().and_then(|host| host.strip_suffix(':')).unwrap_or_default();
    if path.starts_with('/') && scheme_of(&last.to_ascii_lowercase()).is_some() {
        return Err(of_url(
            "has a host with a scheme of its own: the scheme at the beginning applies to all hosts, with TLS or without",
        ));
    }
    Ok(())
}

fn read_db(text: &str) -> Result<i64> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    number.map(i64::from).ok_or_else(|| of_url("has a database that is not a number"))
}

fn read_query(target: &mut Target, kind: Kind, query: &str) -> Result<()> {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    for (index, parameter) in parameters.enumerate() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // In a query, a `+` is a space.
        let value =
            decode(&value.replace('+', " ")).ok_or_else(|| of_url("has a query that is not UTF-8"))?;
        let text = || (!value.is_empty()).then(|| value.as_str().into());
        let password = || text().map(Password::Literal);
        match (name, kind) {
            ("protocol", _) => target.options_mut().resp3 = read_protocol(&value)?,
            ("db", Kind::Unix) => target.options_mut().db = read_db(&value)?,
            ("user", Kind::Unix) => target.options_mut().login.user = text(),
            ("pass", Kind::Unix) => target.options_mut().login.password = password(),
            ("sentinel_user", Kind::Sentinel) => target.sentinel_options_mut().login.user = text(),
            ("sentinel_password", Kind::Sentinel) => {
                target.sentinel_options_mut().login.password = password();
            }
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
        _ => "; TLS files are set with Tls, and the scheme selects TLS",
    };
    of_url(&format!("{named}; allowed here: {known}{tls}. A `?` in a password is written %3F"))
}

#[cfg(test)]
mod tests;
