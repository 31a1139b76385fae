//! A server: where it is, how one gets in, and whether it answers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use redis::{ConnectionAddr, ProtocolVersion, RedisConnectionInfo};

use crate::error;
use crate::escape::plain;
use crate::login::{Login, Password};
use crate::stream::{Home, Streams};
use crate::tls::Tls;
use crate::trust::Outage;

/// One server, and how a connection there is made. Shows itself without user and password.
#[derive(Clone)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) access: Arc<Access>,
    /// Whether it answers.
    pub outage: Arc<Outage>,
}

impl Address {
    /// A server of which nothing is known yet.
    pub fn at(endpoint: Endpoint, access: Arc<Access>) -> Self {
        Self { endpoint, access, outage: Arc::default() }
    }

    /// Where it is.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// How one gets in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Returns the number of the database that is used there.
    pub fn db(&self) -> i64 {
        self.access.db
    }

    /// The same server, as nobody in particular.
    pub fn anonymous(&self) -> Self {
        self.with(Access { login: Login::default(), db: 0, resp3: false, ..(*self.access).clone() })
    }

    /// The same server, spoken to in RESP3: for subscriptions.
    pub fn resp3(&self) -> Self {
        self.with(Access { resp3: true, ..(*self.access).clone() })
    }

    /// The same server, told nothing that it need not be told.
    pub(super) fn terse(&self) -> Self {
        self.with(Access { terse: true, ..(*self.access).clone() })
    }

    /// Returns whether connections there are over TLS.
    pub fn is_over_tls(&self) -> bool {
        self.access.tls.is_some()
    }

    fn with(&self, access: Access) -> Self {
        Self { access: Arc::new(access), ..self.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.endpoint, f)?;
        match self.db() {
            0 => Ok(()),
            db => write!(f, "/{db}"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A login, and over what it is made. All endpoints of one kind share it. Shows neither user nor password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The user and the password.
    pub login: Login,
    /// The number of the database.
    pub db: i64,
    /// Whether the connection is in RESP3; otherwise it is in RESP2.
    pub resp3: bool,
    /// Says no more than it has to: the server is not told what the client's library is.
    pub terse: bool,
    /// None: plain TCP.
    pub tls: Option<Tls>,
    /// Opens streams in place of TCP and Unix sockets.
    pub streams: Option<Streams>,
    /// Where connections live.
    pub home: Home,
}

impl Access {
    /// What is told to a server first. The password's file is read now.
    pub(super) fn settings(&self) -> error::Result<RedisConnectionInfo> {
        let protocol = if self.resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let mut settings = RedisConnectionInfo::default().set_db(self.db).set_protocol(protocol);
        if self.terse {
            settings = settings.set_skip_set_lib_name();
        }
        if let Some(user) = &self.login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.login.password {
            settings = settings.set_password(password.get()?);
        }
        Ok(settings)
    }

    /// Whether files have to be read for a connection.
    pub(super) fn has_files(&self) -> bool {
        self.tls.is_some() || matches!(self.login.password, Some(Password::File { .. }))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("db", &self.db).field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// How many bytes of a host or a path a log line shows.
const SHOWN: usize = 255;

/// A port of a host, or a socket in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A port of a host.
    Tcp {
        /// A name or an address; an IPv6 address stands without brackets.
        host: String,
        /// The number of the port.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Endpoint {
    /// Reads `host`, `host:port`, `[IPv6]` or `[IPv6]:port`, or says what is wrong with it without quoting it.
    pub fn read(text: &str, default_port: u16) -> Result<Self, &'static str> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("a `[` without its `]`")?,
            None if text.matches(':').count() > 1 => {
                return Err("an IPv6 address has to stand in brackets: [::1]:6379");
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let host = if text.starts_with('[') {
            host.parse::<Ipv6Addr>().map_err(|_| "what stands in brackets is no IPv6 address")?.to_string()
        } else {
            name(host)?.to_owned()
        };
        if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
            return Err("nobody can connect to that address: it stands for all of a machine's");
        }
        Ok(Self::Tcp { host, port: read_port(port, default_port)? })
    }

    /// As servers name each other in answers: `host:port`, or `:port` for a port of the host that was asked.
    pub fn announced(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// The same in two parts. What cannot be a host or a port is refused: an answer may be forged.
    pub fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
        let host = match (host.trim_start_matches('[').trim_end_matches(']'), asked) {
            ("" | "?", Self::Tcp { host, .. }) => host,
            ("" | "?", Self::Unix(_)) => return None,
            (host, _) => host,
        };
        let fine =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%');
        let is_host = !host.is_empty() && host.len() <= SHOWN && host.bytes().all(fine);
        (is_host && port > 0).then(|| Self::Tcp { host: host.to_owned(), port })
    }

    /// The same for `redis`.
    pub(super) fn addr(&self) -> ConnectionAddr {
        match self {
            Self::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Self::Unix(path) => ConnectionAddr::Unix(path.clone()),
        }
    }
}

fn name(host: &str) -> Result<&str, &'static str> {
    match host {
        "" => Err("its host is empty"),
        _ if host.contains(',') => Err("its host has a comma: several servers are a cluster's or sentinels"),
        _ if host.bytes().all(|byte| byte.is_ascii_graphic() && !b"#/<>?@[\\]^|".contains(&byte)) => Ok(host),
        _ => Err("its host has a character that no host has"),
    }
}

/// What follows a host.
fn read_port(text: &str, default: u16) -> Result<u16, &'static str> {
    match text.strip_prefix(':') {
        None if text.is_empty() => Ok(default),
        None => Err("only a `:` and a port may follow a `]`"),
        Some("") => Ok(default),
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => Err("its port is not a number from 1 to 65535"),
            Ok(port) => Ok(port),
        },
    }
}

impl fmt::Display for Endpoint {
    /// Fit for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Tcp { host, port } if host.contains(':') => plain(&format!("[{host}]:{port}"), SHOWN),
            Self::Tcp { host, port } => plain(&format!("{host}:{port}"), SHOWN),
            Self::Unix(path) => plain(&path.to_string_lossy(), SHOWN),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    #[test]
    fn a_host_that_is_not_named_is_that_of_the_server_that_was_asked() {
        let asked = tcp("redis.internal", 7000);
        for (text, read) in [
            ("10.0.0.1:7001", Some(tcp("10.0.0.1", 7001))),
            (":7001", Some(tcp("redis.internal", 7001))),
            ("?:7001", Some(tcp("redis.internal", 7001))),
            ("::1:7001", Some(tcp("::1", 7001))),
            ("[::1]:7001", Some(tcp("::1", 7001))),
            ("10.0.0.1:0", None),
            ("10.0.0.1", None),
            ("10.0.0.1:70000", None),
            ("a b:7001", None),
            ("h\n:7001", None),
        ] {
            assert_eq!(Endpoint::announced(text, &asked), read, "{text:?}");
        }
    }

    #[test]
    fn hosts_and_ports_are_read() {
        for (text, shown) in [
            ("h", "h:6379"),
            ("h:", "h:6379"),
            ("h:7000", "h:7000"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("my_redis.example.com:65535", "my_redis.example.com:65535"),
            ("[::1]", "[::1]:6379"),
            ("[2001:DB8:0:0::1]:7000", "[2001:db8::1]:7000"),
        ] {
            assert_eq!(Endpoint::read(text, 6379).unwrap().to_string(), shown);
        }
        assert_eq!(Endpoint::read("h", 26379).unwrap().to_string(), "h:26379");
    }

    #[test]
    fn what_is_no_server_is_refused_for_its_own_reason() {
        for (text, reason) in [
            ("", "host is empty"),
            (":7000", "host is empty"),
            ("h:0", "its port"),
            ("h:x", "its port"),
            ("h:65536", "its port"),
            ("h:-1", "its port"),
            ("::1", "brackets"),
            ("[::1", "without its"),
            ("[h]:1", "IPv6"),
            ("[fe80::1%eth0]:1", "IPv6"),
            ("[::1]7000", "may follow"),
            ("h1,h2", "comma"),
            ("h h", "character"),
            ("käse", "character"),
            ("u@h", "character"),
            ("0.0.0.0:1", "all of a machine's"),
            ("[::0]", "all of a machine's"),
        ] {
            let said = Endpoint::read(text, 6379).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
        }
    }
}
