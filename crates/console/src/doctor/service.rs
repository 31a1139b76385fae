//! Where a server runs, as far as advice depends on it: its machine, and the service behind it.
//!
//! Services run servers for others, and let nobody run some of the lines that the doctor prints: settings, users and
//! versions are changed by the service's own means there. docs/providers.md has the pages that say so. A service is known
//! by its host names; where these are hidden, by what INFO says, if it says anything. One that refuses CONFIG as a command
//! that does not exist is a service, whichever.

use std::net::IpAddr;

use crate::connection::Endpoint;

use super::settings::Info;

/// Where the server is, as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// On this machine.
    Here,
    /// In a container, on whichever machine.
    Container,
    /// On the machine of this name.
    Elsewhere(String),
}

impl Site {
    /// A server that is the first process of its machine runs in a container.
    pub(super) fn of(endpoint: &Endpoint, info: &Info) -> Self {
        match endpoint {
            _ if info.number("process_id") == Some(1) => Self::Container,
            Endpoint::Tcp { host, .. } if !is_here(endpoint) => Self::Elsewhere(host.clone()),
            _ => Self::Here,
        }
    }

    /// Ends a line that says what to install.
    pub(super) fn there(&self) -> String {
        match self {
            Self::Here => "on this machine".to_owned(),
            Self::Container => "in its container: start it from a newer image".to_owned(),
            Self::Elsewhere(host) => format!("on {host}"),
        }
    }

    /// Begins a line that is for the kernel of the server's machine; empty where that is this one.
    pub(super) fn prefix(&self) -> String {
        match self {
            Self::Here => String::new(),
            Self::Container => "on the machine that runs the container: ".to_owned(),
            Self::Elsewhere(host) => format!("on {host}: "),
        }
    }
}

/// Returns whether the way there stays within the machine. A name may lead anywhere.
pub(super) fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp { host, .. } => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// One service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: &'static str,
    /// A host name has all of these: the last ends it.
    hosts: &'static [&'static [&'static str]],
    /// A line of INFO, or the beginning of its name where the value is empty.
    info: Option<(&'static str, &'static str)>,
    /// The command that sets `{name}` to `{value}`, setting by setting; the last, without a name, all others. Nothing: CONFIG SET.
    settings: &'static [(&'static str, &'static str)],
    /// The command that gives `{user}` more `{rules}`.
    users: &'static str,
}

/// Parts of other lines that nobody can follow there, and what takes the place of each line.
const INSTEAD: [(&str, &str); 4] = [
    ("install Redis", "choose a newer version of the engine in the settings of the service"),
    ("rename-command", "choose an engine of the service that runs scripts"),
    (" CLUSTER ADDSLOTSRANGE", "ask the support of the service: it alone gives slots to nodes"),
    (" BGSAVE", "ask the support of the service: the disk is its own"),
];

const NOTIFY: &str = "notify-keyspace-events";
const LOG: &str = "appendonly";

const SERVERLESS: Service = Service {
    name: "ElastiCache Serverless",
    hosts: &[&[".serverless.", ".cache.amazonaws.com"], &[".serverless.", ".cache.amazonaws.com.cn"]],
    info: None,
    settings: &[
        ELASTICACHE.settings[0],
        ("", "no setting can be changed on ElastiCache Serverless: a node-based cache has {name}"),
    ],
    users: ELASTICACHE.users,
};

const ELASTICACHE: Service = Service {
    name: "ElastiCache",
    hosts: &[&[".cache.amazonaws.com"], &[".cache.amazonaws.com.cn"]],
    info: Some(("os", "Amazon ElastiCache")),
    settings: &[
        (
            LOG,
            "ElastiCache keeps no log of writes: its backups bound what a crash loses, and MemoryDB has a log",
        ),
        (
            "",
            "aws elasticache modify-cache-parameter-group --cache-parameter-group-name GROUP \
         --parameter-name-values 'ParameterName={name},ParameterValue={value}'",
        ),
    ],
    users: "aws elasticache modify-user --user-id {user} --append-access-string \"{rules}\"",
};

const MEMORYDB: Service = Service {
    name: "MemoryDB",
    hosts: &[&[".memorydb.", ".amazonaws.com"], &[".memorydb.", ".amazonaws.com.cn"]],
    info: None,
    settings: &[
        (LOG, "MemoryDB keeps a log of its own, whatever INFO says"),
        (
            "",
            "aws memorydb update-parameter-group --parameter-group-name GROUP \
         --parameter-name-values 'ParameterName={name},ParameterValue={value}'",
        ),
    ],
    users: "aws memorydb update-user --user-name {user} --access-string \"PRESENT-STRING {rules}\"",
};

const AZURE: Service = Service {
    name: "Azure Managed Redis",
    hosts: &[&[".redis.azure.net"], &[".redisenterprise.cache.azure.net"]],
    info: None,
    settings: &[
        (
            NOTIFY,
            "Update-AzRedisEnterpriseCacheDatabase -ClusterName NAME -ResourceGroupName GROUP -NotifyKeyspaceEvents {value}",
        ),
        ("", "set {name} to {value} in the settings of the database, where Azure has it"),
    ],
    users: "grant {user} {rules} by an access policy of the database, where Azure has it",
};

const AZURE_CACHE: Service = Service {
    name: "Azure Cache for Redis",
    hosts: &[&[".redis.cache.windows.net"]],
    info: None,
    settings: &[(
        "",
        "az redis update --name NAME --resource-group GROUP --set 'redisConfiguration.{name}'={value}",
    )],
    users: "grant {user} {rules} by a data access policy of the cache",
};

const CLOUD: Service = Service {
    name: "Redis Cloud",
    hosts: &[&[".redis-cloud.com"], &[".redislabs.com"]],
    info: None,
    settings: &[(NOTIFY, ""), ("", "set {name} to {value} in the console of Redis Cloud, where it has that")],
    users: "grant {user} {rules} by a role in the console of Redis Cloud",
};

const UPSTASH: Service = Service {
    name: "Upstash",
    hosts: &[&[".upstash.io"]],
    info: Some(("upstash_version", "")),
    settings: &[(NOTIFY, ""), ("", "set {name} to {value} in the console of Upstash, where it has that")],
    users: "grant {user} {rules} in the console of Upstash, where it has that",
};

/// The first that fits is it.
const ALL: [&Service; 7] = [&SERVERLESS, &ELASTICACHE, &MEMORYDB, &AZURE, &AZURE_CACHE, &CLOUD, &UPSTASH];

/// One that refuses CONFIG, and says no more of itself.
pub(super) const UNNAMED: Service = Service {
    name: "a service that refuses CONFIG",
    hosts: &[],
    info: None,
    settings: &[("", "set {name} to {value} by the means of the service, where it has that")],
    users: "grant {user} {rules} by the means of the service",
};

impl Service {
    /// The service that a host name belongs to.
    pub(super) fn at(endpoint: &Endpoint) -> Option<&'static Self> {
        let Endpoint::Tcp { host, .. } = endpoint else { return None };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let fits = |parts: &[&str]| {
            parts.iter().all(|part| host.contains(part))
                && parts.last().is_some_and(|end| host.ends_with(end))
        };
        ALL.into_iter().find(|service| service.hosts.iter().any(|parts| fits(parts)))
    }

    /// The service that names itself in INFO.
    pub(super) fn said_by(info: &Info) -> Option<&'static Self> {
        ALL.into_iter().find(|service| {
            service.info.is_some_and(|(name, value)| {
                info.get(name).is_some_and(|said| value.is_empty() || said == value)
            })
        })
    }

    /// Returns what to do there in place of a line of `redis-cli` or of the machine's own; none where nobody can.
    pub(super) fn instead(&self, line: &str) -> Option<String> {
        let command = line.split_once("CONFIG SET ").filter(|(cli, _)| cli.starts_with("redis-cli "));
        if let Some((name, value)) = command.and_then(|(_, setting)| setting.split_once(' ')) {
            let (_, there) = self.settings.iter().find(|(of, _)| *of == name || of.is_empty())?;
            return Some(match *there {
                "" => line.to_owned(),
                there => there.replace("{name}", name).replace("{value}", value),
            });
        }
        if let Some((_, user)) = line.split_once(" ACL SETUSER ") {
            let (user, rules) = user.split_once(' ')?;
            return Some(self.users.replace("{user}", user).replace("{rules}", &rules.replace('\'', "")));
        }
        let instead = INSTEAD.iter().find(|(part, _)| line.contains(part));
        Some(instead.map_or(line, |(_, there)| there).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_sockets_are_here() {
        for (endpoint, here) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("[::1]", true),
            ("LocalHost", true),
            ("10.0.0.1", false),
            ("localhost.example.com", false),
            ("[2001:db8::1]", false),
        ] {
            assert_eq!(is_here(&Endpoint::read(endpoint, 6379).unwrap()), here, "{endpoint}");
        }
        assert!(is_here(&Endpoint::Unix("/run/redis.sock".into())));
    }

    #[test]
    fn a_server_that_is_the_first_process_is_in_a_container() {
        for (host, info, site) in [
            ("localhost", "process_id:7\r\n", Site::Here),
            ("localhost", "process_id:1\r\n", Site::Container),
            ("redis.shop", "process_id:1\r\n", Site::Container),
            ("redis.shop", "", Site::Elsewhere("redis.shop".to_owned())),
        ] {
            assert_eq!(Site::of(&Endpoint::read(host, 6379).unwrap(), &Info::read(info)), site, "{host}");
        }
    }

    #[test]
    fn services_are_known_by_their_hosts() {
        for (host, name) in [
            ("c-abc.serverless.use1.cache.amazonaws.com", Some("ElastiCache Serverless")),
            ("master.c.abc.use1.cache.amazonaws.com", Some("ElastiCache")),
            ("Clustercfg.C.abc.use1.cache.amazonaws.com.", Some("ElastiCache")),
            ("c.abc.ng.0001.cnn1.cache.amazonaws.com.cn", Some("ElastiCache")),
            ("clustercfg.c.abc.memorydb.us-east-1.amazonaws.com", Some("MemoryDB")),
            ("c.eastus.redis.azure.net", Some("Azure Managed Redis")),
            ("c.redis.cache.windows.net", Some("Azure Cache for Redis")),
            ("redis-1.c1.us-east-1-2.ec2.redns.redis-cloud.com", Some("Redis Cloud")),
            ("a-b-1.upstash.io", Some("Upstash")),
            ("cache.amazonaws.com.example.org", None),
            ("notupstash.io", None),
            ("10.0.0.1", None),
        ] {
            let endpoint = Endpoint::read(host, 6379).unwrap();
            assert_eq!(Service::at(&endpoint).map(|service| service.name), name, "{host}");
        }
    }

    #[test]
    fn services_are_known_by_what_they_say_of_themselves() {
        for (text, name) in [
            ("redis_version:7.1.0\r\nos:Amazon ElastiCache\r\n", Some("ElastiCache")),
            ("redis_version:8.2.0\r\nupstash_version:1.10.5\r\n", Some("Upstash")),
            ("redis_version:7.0.15\r\nos:Linux 6.1 x86_64\r\n", None),
        ] {
            assert_eq!(Service::said_by(&Info::read(text)).map(|service| service.name), name, "{text}");
        }
    }

    #[test]
    fn each_service_says_what_can_be_done_there() {
        let notify = "redis-cli -h h -p 1 CONFIG SET notify-keyspace-events Ex";
        for service in ALL.into_iter().chain([&UNNAMED]) {
            let set = service.instead(notify).unwrap();
            let keeps = ["Redis Cloud", "Upstash"].contains(&service.name);
            assert_eq!(set == notify, keeps, "{}: {set}", service.name);
            assert!(set.contains("Ex") || service == &SERVERLESS, "{set}");
            let user = service.instead("redis-cli -h h -p 1 ACL SETUSER app +get '~keylapse:*'").unwrap();
            assert!(
                user.contains("app") && user.contains("+get ~keylapse:*") && !user.contains("SETUSER"),
                "{user}"
            );
            for (line, part) in INSTEAD {
                let there = service.instead(&format!("redis-cli -h h -p 1 {}", line.trim())).unwrap();
                assert_eq!(there, part, "{line}");
            }
            let other = "redis-cli -h h -p 1 INFO persistence";
            assert_eq!(service.instead(other).as_deref(), Some(other));
        }
    }
}
