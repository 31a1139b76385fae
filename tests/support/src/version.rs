//! The family and version of a server, from the output of `--version`.

use std::fmt;

/// A server's family and version number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Is true for Valkey, and false for Redis.
    pub is_valkey: bool,
    /// The major, minor and patch numbers.
    pub number: (u32, u32, u32),
}

impl Version {
    /// Parses `Redis server v=7.0.15 sha=…` or `Valkey server v=9.1.2 sha=…`.
    ///
    /// `INFO` is not reliable, because Valkey reports `redis_version:7.2.4`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let is_valkey = match words.next()? {
            "Valkey" => true,
            "Redis" => false,
            _ => return None,
        };
        let dotted = words.find_map(|word| word.strip_prefix("v="))?;
        Some(Self { is_valkey, number: number(dotted)? })
    }

    /// Returns whether the server has this command. Only commands of newer servers are listed; others return false.
    pub fn has(&self, command: &str) -> bool {
        let since = match (command, self.is_valkey) {
            ("HSETEX", false) => (8, 0, 0),
            ("MSETEX" | "DELEX" | "SET IFEQ", false) => (8, 4, 0),
            ("SET IFEQ", true) => (8, 1, 0),
            ("HSETEX" | "DELIFEQ", true) => (9, 0, 0),
            ("MSETEX", true) => (9, 1, 0),
            _ => return false,
        };
        self.number >= since
    }

    /// Returns whether a key expires if its new deadline is in the past. Otherwise the server deletes the key.
    pub fn expires_in_the_past(&self) -> bool {
        self.is_valkey && self.number >= (8, 1, 0)
    }
}

fn number(dotted: &str) -> Option<(u32, u32, u32)> {
    let mut parts = dotted.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.is_valkey { "Valkey" } else { "Redis" };
        let (major, minor, patch) = self.number;
        write!(f, "{family} {major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_read() {
        let redis = Version::parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64");
        assert_eq!(redis, Some(Version { is_valkey: false, number: (7, 0, 15) }));

        let valkey = Version::parse("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64");
        assert_eq!(valkey, Some(Version { is_valkey: true, number: (9, 1, 2) }));
        assert_eq!(valkey.map(|version| version.to_string()).as_deref(), Some("Valkey 9.1.2"));
    }

    #[test]
    fn other_programs_are_not_servers() {
        for line in ["", "redis-cli 7.0.15", "Redis server", "Redis server v=seven", "Redis server v=7.0"] {
            assert_eq!(Version::parse(line), None, "{line:?}");
        }
    }
}
