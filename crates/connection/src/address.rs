//! The address of one server, the options for connections to it, and its availability.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use redis::{ConnectionAddr, ProtocolVersion, RedisConnectionInfo};

use crate::error;
use crate::escape::escape_line;
use crate::login::{Login, Password};
use crate::replacement::Availability;
use crate::stream::{ConnectionRuntime, Streams};
use crate::tls::Tls;

/// One server, with the options for connections to it. `Display` and `Debug` leave out the user and the password.
#[derive(Clone)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) access: Arc<ConnectOptions>,
    /// The availability of the server, shared by all clones.
    pub outage: Arc<Availability>,
}

impl Address {
    /// Creates the address of a server that has not been contacted yet.
    pub fn at(endpoint: Endpoint, access: Arc<ConnectOptions>) -> Self {
        Self { endpoint, access, outage: Arc::default() }
    }

    /// Returns the host and port, or the path of the Unix socket.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Returns the login, the database and the transport of connections.
    pub fn options(&self) -> &ConnectOptions {
        &self.access
    }

    /// Returns the number of the database that connections select.
    pub fn db(&self) -> i64 {
        self.access.db
    }

    /// Returns the same server without a login, in database 0 and in RESP2.
    pub fn anonymous(&self) -> Self {
        self.with(ConnectOptions { login: Login::default(), db: 0, resp3: false, ..(*self.access).clone() })
    }

    /// Returns the same server with connections in RESP3, which subscriptions use.
    pub fn resp3(&self) -> Self {
        self.with(ConnectOptions { resp3: true, ..(*self.access).clone() })
    }

    /// Returns the same server with connections that do not send the library's name (`CLIENT SETINFO`).
    pub(super) fn without_library_name(&self) -> Self {
        self.with(ConnectOptions { skip_library_name: true, ..(*self.access).clone() })
    }

    /// Returns whether connections use TLS.
    pub fn is_over_tls(&self) -> bool {
        self.access.tls.is_some()
    }

    fn with(&self, access: ConnectOptions) -> Self {
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

/// The login, the database and the transport of connections. All servers of a target share one value, and so do its
/// sentinels. `Debug` leaves out the user and the password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The user and the password.
    pub login: Login,
    /// The number of the database that connections select.
    pub db: i64,
    /// True for RESP3, false for RESP2.
    pub resp3: bool,
    /// True if connections do not send the library's name (`CLIENT SETINFO`), which some proxies refuse.
    pub skip_library_name: bool,
    /// The TLS settings; `None` for plain TCP.
    pub tls: Option<Tls>,
    /// Opens the streams that replace TCP and Unix sockets, if set.
    pub streams: Option<Streams>,
    /// The runtime that opens and reads connections.
    pub runtime: ConnectionRuntime,
}

impl ConnectOptions {
    /// Returns the settings of the connection's handshake. Reads the password's file on each call.
    pub(super) fn settings(&self) -> error::Result<RedisConnectionInfo> {
        let protocol = if self.resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let mut settings = RedisConnectionInfo::default().set_db(self.db).set_protocol(protocol);
        if self.skip_library_name {
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

    /// Returns whether a connection needs a file: a certificate, a key or a password.
    pub(super) fn has_files(&self) -> bool {
        self.tls.is_some() || matches!(self.login.password, Some(Password::File { .. }))
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions").field("db", &self.db).field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// The most bytes of a host or a path in a log line.
const MAX_SHOWN_BYTES: usize = 255;

/// A port of a host, or a socket in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A port of a host.
    Tcp {
        /// A name or an address; an IPv6 address has no brackets.
        host: String,
        /// The number of the port.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
    ///
    /// # Errors
    /// The reason why the text is not a server. It does not quote the text, which may be a part of a password.
    pub fn read(text: &str, default_port: u16) -> Result<Self, &'static str> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("a `[` without its `]`")?,
            None if text.matches(':').count() > 1 => {
                return Err("an IPv6 address needs brackets: [::1]:6379");
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let host = if text.starts_with('[') {
            host.parse::<Ipv6Addr>().map_err(|_| "the text in brackets is not an IPv6 address")?.to_string()
        } else {
            check_host(host)?.to_owned()
        };
        if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
            return Err("its address means all addresses of a machine, so no client can connect to it");
        }
        Ok(Self::Tcp { host, port: read_port(port, default_port)? })
    }

    /// Parses an endpoint that the server `asked` returned: `host:port`, or `:port` for a port of the host in `asked`.
    pub fn announced(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// Creates an endpoint from a host and a port that the server `asked` returned. An empty host or `?` means the host in
    /// `asked`. Returns `None` for an impossible host or port, as an answer may be forged.
    pub fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
        let host = match (host.trim_start_matches('[').trim_end_matches(']'), asked) {
            ("" | "?", Self::Tcp { host, .. }) => host,
            ("" | "?", Self::Unix(_)) => return None,
            (host, _) => host,
        };
        let fine =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%');
        let is_host = !host.is_empty() && host.len() <= MAX_SHOWN_BYTES && host.bytes().all(fine);
        (is_host && port > 0).then(|| Self::Tcp { host: host.to_owned(), port })
    }

    /// Converts the endpoint into the type of `redis`.
    pub(super) fn addr(&self) -> ConnectionAddr {
        match self {
            Self::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Self::Unix(path) => ConnectionAddr::Unix(path.clone()),
        }
    }
}

fn check_host(host: &str) -> Result<&str, &'static str> {
    match host {
        "" => Err("its host is empty"),
        _ if host.contains(',') => {
            Err("its host has a comma: only a cluster or sentinels can have several hosts")
        }
        _ if host.bytes().all(|byte| byte.is_ascii_graphic() && !b"#/<>?@[\\]^|".contains(&byte)) => Ok(host),
        _ => Err("its host has a character that a host cannot have"),
    }
}

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
    /// Writes the endpoint with control characters escaped, in at most 255 bytes or so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Tcp { host, port } if host.contains(':') => {
                escape_line(&format!("[{host}]:{port}"), MAX_SHOWN_BYTES)
            }
            Self::Tcp { host, port } => escape_line(&format!("{host}:{port}"), MAX_SHOWN_BYTES),
            Self::Unix(path) => escape_line(&path.to_string_lossy(), MAX_SHOWN_BYTES),
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
            ("0.0.0.0:1", "all addresses of a machine"),
            ("[::0]", "all addresses of a machine"),
        ] {
            let error = Endpoint::read(text, 6379).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
