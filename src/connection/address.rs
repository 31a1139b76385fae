//! Server URLs, read early and strictly.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::connection::endpoint::Endpoint;
use crate::connection::outage::Outage;
use crate::connection::stream::Streams;
use crate::error::{Error, Result};
use crate::escape::plain;

/// How many bytes of a host or a path a log line shows.
const SHOWN: usize = 255;

/// A parsed server URL, and how a connection there is made. Shows itself without user and password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) info: ConnectionInfo,
    pub(crate) db: i64,
    /// Opens streams in place of TCP and Unix sockets.
    pub(crate) streams: Option<Streams>,
    /// Whether it answers.
    pub(crate) outage: Arc<Outage>,
}

/// After this long without an acknowledgement the kernel gives a connection up.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// `redis` 1.x leaves all of these off.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(DEAD_AFTER).with_interval(Duration::from_secs(3));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_AFTER);
    settings
}

/// Schemes that the design knows and this version does not serve yet.
const LATER: [&str; 4] = ["redis+sentinel", "redis+cluster", "valkey+sentinel", "valkey+cluster"];

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let scheme = url.split_once("://").map_or(url, |(scheme, _)| scheme);
        if LATER.contains(&scheme) {
            return Err(Error::invalid(format!(
                "{scheme}:// is not supported by this version; give the URL of a standalone server"
            )));
        }
        if matches!(scheme, "rediss" | "valkeys") {
            return Err(Error::invalid(format!(
                "{scheme}:// needs TLS, which this version does not have; keylapse never falls back to plain TCP"
            )));
        }
        // The parser's own message may quote the URL and so the password.
        let info = url.into_connection_info().map_err(|_| {
            Error::invalid(
                "the server URL cannot be read; expected redis://[user:password@]host[:port][/db] or unix:///path",
            )
        })?;
        let db = info.redis_settings().db();
        Ok(Self { info: info.set_tcp_settings(tcp_settings()), db, streams: None, outage: Arc::default() })
    }

    /// Whether it is spoken to in TLS.
    pub(crate) fn has_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Where it is.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self.info.addr() {
            ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Endpoint::Tcp { host: host.clone(), port: *port }
            }
            // There are no others; this one has no port either.
            other => Endpoint::Tcp { host: other.to_string(), port: 0 },
        }
    }

    /// Another server with the same login.
    pub(crate) fn at(&self, endpoint: &Endpoint) -> Self {
        let addr = match endpoint {
            Endpoint::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Endpoint::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let info = self.info.clone().set_addr(addr);
        Self { info, outage: Arc::new(self.outage.of_another()), ..self.clone() }
    }

    /// The same server, as nobody in particular.
    pub(crate) fn anonymous(&self) -> Self {
        let info = self.info.clone().set_redis_settings(RedisConnectionInfo::default());
        Self { info, ..self.clone() }
    }

    /// The same server, spoken to in RESP3: for subscriptions.
    pub(crate) fn resp3(&self) -> Self {
        let settings = self.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Self { info: self.info.clone().set_redis_settings(settings), ..self.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.info.addr().to_string(), SHOWN))?;
        if self.db != 0 {
            write!(f, "/{}", self.db)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        let address = Address::parse("redis://user:hunter2@127.0.0.1:7000/3").unwrap();
        assert_eq!(format!("{address} {address:?}"), "127.0.0.1:7000/3 127.0.0.1:7000/3");
        for bad in ["redis://user:hunter2@", "hunter2", "redis://:hunter2@host:port/x", "http://hunter2"] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn odd_but_good_urls_are_read() {
        for (url, shown) in [
            ("redis://127.0.0.1", "127.0.0.1:6379"),
            ("redis://:p%40ss%25@[::1]:7000/1", "::1:7000/1"),
            ("redis://user:a%40b%3Ac%2Fd@h/2", "h:6379/2"),
            ("valkey://localhost", "localhost:6379"),
            ("unix:///tmp/redis.sock", "/tmp/redis.sock"),
        ] {
            assert_eq!(Address::parse(url).unwrap().to_string(), shown);
        }
    }

    /// An `@` or `:` in it can stand there as it is, a `%` cannot.
    #[test]
    fn passwords_of_any_characters_are_read_as_they_were_meant() {
        for (written, meant) in [
            ("p%40ss%25", "p@ss%"),
            ("a@b", "a@b"),
            ("a:b", "a:b"),
            ("%2F%3F%23%5B%5D", "/?#[]"),
            ("%C3%A4", "ä"),
            ("100%25", "100%"),
        ] {
            let address = Address::parse(&format!("redis://user:{written}@h")).unwrap();
            assert_eq!(address.info.redis_settings().password(), Some(meant), "{written}");
            assert_eq!(address.to_string(), "h:6379");
        }
    }

    #[test]
    fn no_path_or_host_breaks_a_log_line() {
        for (url, shown) in [
            ("unix:///tmp/\x1b[31m", "/tmp/\\u{1b}[31m"),
            ("unix:///tmp/%0Aforged", "/tmp/\\nforged"),
            ("redis://h%0A", "h%0A:6379"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(format!("{address} {address:?}"), format!("{shown} {shown}"));
        }
        let long = format!("unix:///{}", "x".repeat(10_000));
        assert_eq!(Address::parse(&long).unwrap().to_string().len(), SHOWN);
    }

    #[test]
    fn schemes_of_other_topologies_are_refused_by_name() {
        for url in ["redis+cluster://h", "redis+sentinel://h/m", "rediss://h"] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(url.split_once("://").unwrap().0), "{error}");
        }
    }
}
