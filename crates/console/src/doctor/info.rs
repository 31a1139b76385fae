//! What a server says of itself: the answer to INFO.

use std::collections::HashMap;

/// INFO's lines by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

/// What a primary says of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicaLine {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) state: String,
    /// Up to where it has said that it has everything.
    pub(super) offset: u64,
    /// Seconds since it has said so.
    pub(super) lag: u64,
}

impl Info {
    pub(super) fn read(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Whether anything was said at all.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// Valkey has another name for it.
    pub(super) fn is_sentinel(&self) -> bool {
        ["redis_mode", "server_mode"].iter().any(|name| self.get(name) == Some("sentinel"))
    }

    pub(super) fn is_replica(&self) -> bool {
        self.get("role") == Some("slave")
    }

    /// Kind and version, for people.
    pub(super) fn kind(&self) -> String {
        match (self.get("valkey_version"), self.get("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "neither Redis nor Valkey".to_owned(),
        }
    }

    /// Whether it has all that keylapse needs: Redis 7.0. Valkey says of itself that it is a Redis 7.2. None of another
    /// program.
    pub(super) fn is_new_enough(&self) -> Option<bool> {
        let major =
            self.get("redis_version").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.map(|major| major >= 7)
    }

    /// How many keys of a database have a time to live.
    pub(super) fn volatile_keys(&self, db: i64) -> u64 {
        let line = self.get(&format!("db{db}")).unwrap_or_default();
        field(line, "expires").and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    /// The replicas of a primary.
    pub(super) fn replicas(&self) -> Vec<ReplicaLine> {
        let lines = (0_u32..).map_while(|place| self.get(&format!("slave{place}")));
        lines.filter_map(ReplicaLine::read).collect()
    }
}

impl ReplicaLine {
    fn read(line: &str) -> Option<Self> {
        let number = |name| field(line, name).and_then(|value| value.parse().ok());
        Some(Self {
            host: field(line, "ip")?.to_owned(),
            port: field(line, "port")?.parse().ok()?,
            state: field(line, "state")?.to_owned(),
            offset: number("offset").unwrap_or_default(),
            lag: number("lag").unwrap_or_default(),
        })
    }
}

/// Of `a=1,b=2`.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        for (text, kind, enough) in [
            ("redis_version:7.0.15\r\n", "Redis 7.0.15", Some(true)),
            ("redis_version:6.2.5\r\n", "Redis 6.2.5", Some(false)),
            ("redis_version:8.2.3\r\n", "Redis 8.2.3", Some(true)),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n",
                "Valkey 9.1.2",
                Some(true),
            ),
            ("redis_version:255.255.255\r\n", "Redis 255.255.255", Some(true)),
            ("dragonfly_version:df\r\n", "neither Redis nor Valkey", None),
            ("redis_version:seven\r\n", "Redis seven", None),
        ] {
            let info = Info::read(text);
            assert_eq!((&*info.kind(), info.is_new_enough()), (kind, enough), "{text}");
        }
    }

    #[test]
    fn databases_and_replicas_are_read() {
        let info = Info::read(
            "# Replication\r\nrole:master\r\n\
             slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=1\r\n\
             slave1:ip=::1,port=6381,state=wait_bgsave,offset=0,lag=0\r\n\
             db0:keys=9,expires=7,avg_ttl=100,subexpiry=0\r\n",
        );
        assert_eq!((info.volatile_keys(0), info.volatile_keys(1)), (7, 0));
        let replicas = info.replicas();
        assert_eq!((replicas.len(), replicas[0].port, &*replicas[1].host), (2, 6380, "::1"));
        assert_eq!((replicas[0].offset, replicas[0].lag, &*replicas[1].state), (14, 1, "wait_bgsave"));
    }
}
