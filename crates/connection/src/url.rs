//! URLs of servers, read early and strictly. What is refused is named, and never quoted: a part that is misread may
//! be a part of the password.

use percent_encoding::percent_decode_str;

use crate::address::Endpoint;
use crate::error::{Error, Result};
use crate::login::{Login, Password};
use crate::target::{Endpoints, SENTINEL_PORT, SERVER_PORT, Target};
use crate::tls::Tls;

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

pub(super) fn read(url: &str) -> Result<Target> {
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
