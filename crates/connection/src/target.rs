//! The servers that a URL or a program names, read and checked before anything is connected.

use std::env;
use std::fmt;
use std::sync::Arc;

use crate::address::{Access, Endpoint};
use crate::error::{Error, Result};
use crate::login::{Environment, Login, OF_SENTINELS, OF_SERVERS};
use crate::stream::{Home, Streams};
use crate::url;

/// The port of a server that says none.
pub const SERVER_PORT: u16 = 6379;
/// The port of a sentinel that says none.
pub const SENTINEL_PORT: u16 = 26379;

/// Servers, and how one gets into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where they are, or who names them.
    pub endpoints: Endpoints,
    /// To servers.
    pub access: Arc<Access>,
    /// To sentinels: a login of their own, and the same TLS.
    pub sentinel_access: Arc<Access>,
}

/// Whom to ask first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// One server.
    One(Endpoint),
    /// Nodes of a cluster, of which any may be down.
    Cluster(Vec<Endpoint>),
    /// The server that sentinels name under this name.
    Sentinel {
        /// The sentinels, of which any may be down.
        sentinels: Vec<Endpoint>,
        /// As the sentinels call it.
        master: String,
    },
}

impl Target {
    /// Servers of which nothing else was said.
    pub fn of(endpoints: Endpoints) -> Self {
        Self { endpoints, access: Arc::default(), sentinel_access: Arc::default() }
    }

    /// Reads a URL, without the checks of the whole.
    ///
    /// # Errors
    /// When the URL cannot be read; the message names the part.
    pub fn read(url: &str) -> Result<Self> {
        url::read(url)
    }

    /// Reads a URL and checks it.
    ///
    /// # Errors
    /// When the URL cannot be read, or says what cannot be.
    pub fn parse(url: &str) -> Result<Self> {
        Self::read(url)?.checked()
    }

    /// Changes how one gets into servers.
    pub fn access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.access)
    }

    /// Changes how one gets into sentinels.
    pub fn sentinel_access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.sentinel_access)
    }

    /// Refuses what does not fit together, and adds what the environment says.
    ///
    /// # Errors
    /// When something does not fit, by the part at fault.
    pub fn checked(self) -> Result<Self> {
        self.checked_within(&|name| env::var_os(name), cfg!(feature = "tls"))
    }

    fn checked_within(self, environment: Environment<'_>, has_tls: bool) -> Result<Self> {
        self.check_endpoints()?;
        self.check_tls(has_tls)?;
        let is_sentinel = matches!(self.endpoints, Endpoints::Sentinel { .. });
        let own = &self.sentinel_access.login;
        if !is_sentinel && *own != Login::default() {
            return Err(Error::invalid("a user or a password of sentinels, but there are no sentinels"));
        }
        let login = self.access.login.clone().with_password_of(OF_SERVERS, environment)?;
        let own = match is_sentinel {
            true => own.clone().with_password_of(OF_SENTINELS, environment)?,
            false => Login::default(),
        };
        let access = Access { login, home: Home::OwnThread, ..(*self.access).clone() };
        let sentinel_access = Access { login: own, db: 0, ..access.clone() };
        Ok(Self { access: access.into(), sentinel_access: sentinel_access.into(), ..self })
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

    fn check_endpoints(&self) -> Result<()> {
        if self.endpoints.all().is_empty() {
            return Err(Error::invalid("the list of hosts is empty"));
        }
        match &self.endpoints {
            Endpoints::Sentinel { master, .. } if master.is_empty() => Err(Error::invalid(
                "the name of the master is missing: the one by which the sentinels know it, as in \
                 redis+sentinel://h1,h2/mymaster",
            )),
            Endpoints::Sentinel { master, .. } if master.contains(|c: char| c.is_control() || c == ' ') => {
                Err(Error::invalid("the master's name has a space or a control character"))
            }
            _ => Ok(()),
        }
    }

    fn check_tls(&self, has_tls: bool) -> Result<()> {
        let Some(tls) = &self.access.tls else { return Ok(()) };
        if self.endpoints.all().iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
            return Err(Error::invalid(
                "TLS over a Unix socket: leave TLS out, the socket is this machine's",
            ));
        }
        if !has_tls {
            return Err(Error::invalid(
                "TLS was asked for, and this program is built without it: build keylapse with its feature `tls` \
                 (cargo add keylapse --features tls); it never falls back to plain TCP",
            ));
        }
        tls.check()
    }
}

impl Endpoints {
    /// Returns those that were named: servers, nodes or sentinels.
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
    use std::ffi::OsString;

    use super::*;
    use crate::login::Password;
    use crate::url::read;

    fn environment(name: &str) -> Option<OsString> {
        match name {
            OF_SERVERS => Some("of servers".into()),
            "KEYLAPSE_SENTINEL_PASSWORD_FILE" => Some("/of/sentinels".into()),
            _ => None,
        }
    }

    fn checked(url: &str) -> Target {
        read(url).unwrap().checked_within(&environment, true).unwrap()
    }

    fn said(password: &str) -> Option<Password> {
        Some(Password::Said(password.into()))
    }

    #[test]
    fn the_environment_gives_the_passwords_that_a_url_does_not_say() {
        let target = checked("redis+sentinel://user@h/m");
        assert_eq!(target.access.login.user.as_deref(), Some("user"));
        assert_eq!(target.access.login.password, said("of servers"));
        let of_sentinels = Password::file("/of/sentinels", "KEYLAPSE_SENTINEL_PASSWORD_FILE");
        assert_eq!(target.sentinel_access.login.password, Some(of_sentinels));
        assert_eq!(target.sentinel_access.login.user, None);

        let target = checked("redis+sentinel://user:p@h/m?sentinel_user=s&sentinel_password=q");
        assert_eq!(
            (&target.access.login.password, &target.sentinel_access.login.password),
            (&said("p"), &said("q"))
        );
        assert_eq!(target.sentinel_access.login.user.as_deref(), Some("s"));

        let target = checked("redis+cluster://h1,h2/");
        assert_eq!(target.access.login.password, said("of servers"));
        assert_eq!(target.sentinel_access.login.password, None);
        assert_eq!(checked("unix:///tmp/s").access.login.password, said("of servers"));
    }

    #[test]
    fn two_passwords_in_the_environment_matter_only_where_they_are_asked_for() {
        let both = |_: &str| Some(OsString::from("x"));
        assert!(read("redis://h").unwrap().checked_within(&both, true).is_err());
        read("redis://:p@h").unwrap().checked_within(&both, true).unwrap();
    }

    #[test]
    fn without_the_feature_tls_is_refused_by_the_name_of_the_feature() {
        for url in ["rediss://h", "valkeys+cluster://h", "rediss+sentinel://h/m"] {
            let error = read(url).unwrap().checked_within(&environment, false).unwrap_err().to_string();
            assert!(error.contains("feature `tls`") && error.contains("never falls back"), "{error}");
        }
        read("redis://h").unwrap().checked_within(&environment, false).unwrap();
    }

    #[test]
    fn sentinels_get_neither_the_database_nor_the_login_of_the_servers() {
        let target = checked("rediss+sentinel://u:p@h/m/3");
        assert_eq!((target.access.db, target.sentinel_access.db), (3, 0));
        assert_eq!(target.sentinel_access.login.user, None);
        assert!(target.access.tls.is_some() && target.sentinel_access.tls.is_some());
        assert_ne!(target.sentinel_access.login.password, target.access.login.password);
    }

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
