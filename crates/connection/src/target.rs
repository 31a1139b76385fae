//! What a URL or a program says of its servers, read and checked before anything is connected.

use std::fmt;
use std::sync::Arc;

use crate::access::Access;
use crate::draft::Draft;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::home::Home;
use crate::stream::Streams;
use crate::url;

/// The port of a server, and of a sentinel, that says none.
pub const SERVER_PORT: u16 = 6379;
pub const SENTINEL_PORT: u16 = 26379;

/// Servers, and how one gets into them.
#[derive(Clone, Debug)]
pub struct Target {
    pub endpoints: Endpoints,
    /// To servers.
    pub access: Arc<Access>,
    /// To sentinels: a login of their own, and the same TLS.
    pub sentinel_access: Arc<Access>,
}

/// Whom to ask first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    One(Endpoint),
    /// Nodes of a cluster, of which any may be down.
    Cluster(Vec<Endpoint>),
    Sentinel {
        sentinels: Vec<Endpoint>,
        /// As the sentinels call it.
        master: String,
    },
}

impl Target {
    pub fn parse(url: &str) -> Result<Self> {
        Self::of(url::read(url)?)
    }

    /// The same, over streams of the application, which lead to one server: to several there is no way then.
    pub fn over(&self, streams: Streams) -> Self {
        let leads_there = matches!(self.endpoints, Endpoints::One(_));
        let streams = if leads_there {
            streams
        } else {
            Streams::to_none("streams lead to one server, and these are several")
        };
        let access = Access { streams: Some(streams), ..(*self.access).clone() };
        Self { access: Arc::new(access), ..self.clone() }
    }

    /// The same, whose connections live there.
    pub fn at_home(&self, home: Home) -> Self {
        let at = |access: &Arc<Access>| Arc::new(Access { home, ..(**access).clone() });
        Self { access: at(&self.access), sentinel_access: at(&self.sentinel_access), ..self.clone() }
    }

    /// Refuses what does not fit together, and adds what the environment says.
    pub fn of(draft: Draft) -> Result<Self> {
        draft.check()
    }
}

impl Endpoints {
    pub fn all(&self) -> &[Endpoint] {
        match self {
            Self::One(endpoint) => std::slice::from_ref(endpoint),
            Self::Cluster(seeds) => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

impl fmt::Display for Target {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoints)?;
        match &self.endpoints {
            Endpoints::One(_) => {}
            Endpoints::Cluster(_) => f.write_str(" (cluster)")?,
            Endpoints::Sentinel { master, .. } => write!(f, " (master {master} of sentinels)")?,
        }
        match self.access.db {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_shown_without_user_and_password() {
        for (url, shown) in [
            ("redis://ada:hunter2@h/", "h:6379"),
            ("redis://:hunter2@h:7000/5", "h:7000, database 5"),
            ("redis+cluster://ada:hunter2@h1:7000,h2:7001/", "h1:7000,h2:7001 (cluster)"),
            (
                "redis+sentinel://ada:hunter2@h1,h2/shop/2",
                "h1:26379,h2:26379 (master shop of sentinels), database 2",
            ),
        ] {
            assert_eq!(Target::parse(url).unwrap().to_string(), shown);
        }
    }
}
