//! Where one server listens.

use std::fmt;
use std::path::PathBuf;

use crate::escape::plain;

/// How many bytes of a host or a path a log line shows.
const SHOWN: usize = 255;

/// A host and its port, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Endpoint {
    /// As servers name each other in answers: `host:port`, or `:port` for a port of the host that was asked.
    pub(crate) fn announced(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// The same in two parts. What cannot be a host or a port is refused: an answer may be forged.
    pub(crate) fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
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
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{}:{port}", plain(host, SHOWN)),
            Self::Unix(path) => f.write_str(&plain(&path.to_string_lossy(), SHOWN)),
        }
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
}
