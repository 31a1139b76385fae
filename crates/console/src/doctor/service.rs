//! The machine or managed service on which a server runs, as far as advice depends on it.
//!
//! Managed services refuse some of the commands that the doctor recommends: settings, users and versions are changed with
//! the service's own tools. docs/providers.md links to the documentation of services. A service is recognized by host names
//! or by fields of INFO. A server that refuses CONFIG as an unknown command belongs to an unknown service.

use std::net::IpAddr;

use crate::connection::Endpoint;

use super::settings::Info;

/// The machine of a server, as seen from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// This machine.
    Here,
    /// A container on any machine.
    Container,
    /// The machine with this name.
    Elsewhere(String),
}

impl Site {
    /// Finds the machine of a server. A server with the process ID 1 runs in a container.
    pub(super) fn of(endpoint: &Endpoint, info: &Info) -> Self {
        match endpoint {
            _ if info.number("process_id") == Some(1) => Self::Container,
            Endpoint::Tcp { host, .. } if !is_here(endpoint) => Self::Elsewhere(host.clone()),
            _ => Self::Here,
        }
    }

    /// Returns the end of a line of advice that names a version to install.
    pub(super) fn there(&self) -> String {
        match self {
            Self::Here => "on this machine".to_owned(),
            Self::Container => "in its container: start it from a newer image".to_owned(),
            Self::Elsewhere(host) => format!("on {host}"),
        }
    }

    /// Returns the start of a command line for the kernel of the server's machine. It is empty for this machine.
    pub(super) fn prefix(&self) -> String {
        match self {
            Self::Here => String::new(),
            Self::Container => "on the machine that runs the container: ".to_owned(),
            Self::Elsewhere(host) => format!("on {host}: "),
        }
    }
}

/// Returns whether a connection stays within this machine. A host name other than `localhost` can be any machine.
pub(super) fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp { host, .. } => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// A managed service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: &'static str,
    /// Parts of host names. A host name of the service contains all parts of one entry and ends in the last part.
    hosts: &'static [&'static [&'static str]],
    /// A field of INFO and its value. An empty value stands for any value.
    info: Option<(&'static str, &'static str)>,
    /// The advice that sets `{name}` to `{value}`, by setting. An entry without a name applies to all other settings. Empty
    /// advice means that the service allows CONFIG SET.
    settings: &'static [(&'static str, &'static str)],
    /// The advice that gives `{rules}` to `{user}`.
    users: &'static str,
}

/// Parts of other commands that services refuse, and the advice that replaces the command.
const INSTEAD: [(&str, &str); 4] = [
    ("install Redis", "choose a newer version of the engine in the settings of the service"),
    ("rename-command", "choose an engine of the service that runs scripts"),
    (" CLUSTER ADDSLOTSRANGE", "ask the support of the service, because only the service assigns slots"),
    (" BGSAVE", "ask the support of the service, because the service manages the disk"),
];

const NOTIFY: &str = "notify-keyspace-events";
const LOG: &str = "appendonly";

const SERVERLESS: Service = Service {
    name: "ElastiCache Serverless",
    hosts: &[&[".serverless.", ".cache.amazonaws.com"], &[".serverless.", ".cache.amazonaws.com.cn"]],
    info: None,
    settings: &[
        ELASTICACHE.settings[0],
        ("", "ElastiCache Serverless has no settings: use a node-based cache to set {name}"),
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
            "ElastiCache keeps no log of writes, so a crash loses the writes since the last backup; MemoryDB has a log",
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
        (LOG, "MemoryDB keeps its own log, which INFO does not show"),
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
        ("", "set {name} to {value} in the settings of the database, if Azure offers it"),
    ],
    users: "grant {user} {rules} with an access policy of the database, if Azure offers it",
};

const AZURE_CACHE: Service = Service {
    name: "Azure Cache for Redis",
    hosts: &[&[".redis.cache.windows.net"]],
    info: None,
    settings: &[(
        "",
        "az redis update --name NAME --resource-group GROUP --set 'redisConfiguration.{name}'={value}",
    )],
    users: "grant {user} {rules} with a data access policy of the cache",
};

const CLOUD: Service = Service {
    name: "Redis Cloud",
    hosts: &[&[".redis-cloud.com"], &[".redislabs.com"]],
    info: None,
    settings: &[
        (NOTIFY, ""),
        ("", "set {name} to {value} in the console of Redis Cloud, if it has the setting"),
    ],
    users: "grant {user} {rules} with a role in the console of Redis Cloud",
};

const UPSTASH: Service = Service {
    name: "Upstash",
    hosts: &[&[".upstash.io"]],
    info: Some(("upstash_version", "")),
    settings: &[(NOTIFY, ""), ("", "set {name} to {value} in the console of Upstash, if it has the setting")],
    users: "grant {user} {rules} in the console of Upstash, if it has user permissions",
};

/// All known services. The first one that matches a server is used.
const ALL: [&Service; 7] = [&SERVERLESS, &ELASTICACHE, &MEMORYDB, &AZURE, &AZURE_CACHE, &CLOUD, &UPSTASH];

/// A service that is recognized only because it refuses CONFIG.
pub(super) const UNNAMED: Service = Service {
    name: "a service that refuses CONFIG",
    hosts: &[],
    info: None,
    settings: &[("", "set {name} to {value} with the tools of the service, if it has the setting")],
    users: "grant {user} {rules} with the tools of the service",
};

impl Service {
    /// Returns the service of a host name.
    pub(super) fn at(endpoint: &Endpoint) -> Option<&'static Self> {
        let Endpoint::Tcp { host, .. } = endpoint else { return None };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let fits = |parts: &[&str]| {
            parts.iter().all(|part| host.contains(part))
                && parts.last().is_some_and(|end| host.ends_with(end))
        };
        ALL.into_iter().find(|service| service.hosts.iter().any(|parts| fits(parts)))
    }

    /// Returns the service that names itself in INFO.
    pub(super) fn in_info(info: &Info) -> Option<&'static Self> {
        ALL.into_iter().find(|service| {
            service.info.is_some_and(|(name, value)| {
                info.get(name).is_some_and(|found| value.is_empty() || found == value)
            })
        })
    }

    /// Returns the service's advice that replaces a command line, or the line itself if the service allows it. Returns
    /// `None` if the service has no way.
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
    fn services_are_known_by_their_info() {
        for (text, name) in [
            ("redis_version:7.1.0\r\nos:Amazon ElastiCache\r\n", Some("ElastiCache")),
            ("redis_version:8.2.0\r\nupstash_version:1.10.5\r\n", Some("Upstash")),
            ("redis_version:7.0.15\r\nos:Linux 6.1 x86_64\r\n", None),
        ] {
            assert_eq!(Service::in_info(&Info::read(text)).map(|service| service.name), name, "{text}");
        }
    }

    #[test]
    fn each_service_has_advice_for_each_command() {
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
