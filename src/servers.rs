//! Servers and how one gets into them, said in Rust.

use std::fmt;
use std::path::PathBuf;

use crate::client::Client;
use crate::connection::{Endpoint, Endpoints, Password, SENTINEL_PORT, SERVER_PORT, Target, Tls};
use crate::error::{Error, Result};

/// Which servers, and how one gets into them: what a URL says, said in Rust.
///
/// Wherever a [`Client`] is asked for, this will do, and what cannot work is refused there, by the part that is at fault.
///
/// ```
/// use keylapse::{Client, Schedule, Servers};
///
/// # async fn connect() -> keylapse::Result<()> {
/// let servers = Servers::one("redis.example.com:6380").user("billing").password_file("/run/secrets/redis").database(2);
/// let schedule = Schedule::connect(servers.clone()).await?;
///
/// let client = Client::try_from(servers)?.namespace("billing")?;
/// # Ok(()) }
/// ```
///
/// A password that is not said here is taken from the environment, as for [`Client::new`].
#[derive(Clone)]
#[must_use = "each setting returns the changed servers"]
pub struct Servers {
    /// Not checked yet.
    pub(crate) target: Result<Target>,
    /// Whether a URL has said that there is no TLS.
    plain: bool,
}

impl Servers {
    /// One server: `host` or `host:port`, an IPv6 address in brackets. The port is 6379 if none is said.
    pub fn one(server: &str) -> Self {
        Self::of(read(server, SERVER_PORT).map(Endpoints::One))
    }

    /// One server, by its socket in the file system.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::of(Ok(Endpoints::One(Endpoint::Unix(path.into()))))
    }

    /// A cluster, by some of its nodes; any of them may be down. Ports are 6379 where none is said.
    pub fn cluster<S: AsRef<str>>(nodes: impl IntoIterator<Item = S>) -> Self {
        Self::of(read_all(nodes, SERVER_PORT).map(Endpoints::Cluster))
    }

    /// The servers that sentinels watch under a master's name. Any of the sentinels may be down. Ports are 26379 where
    /// none is said.
    pub fn sentinel<S: AsRef<str>>(sentinels: impl IntoIterator<Item = S>, master: &str) -> Self {
        let master = master.to_owned();
        let sentinels = read_all(sentinels, SENTINEL_PORT);
        Self::of(sentinels.map(|sentinels| Endpoints::Sentinel { sentinels, master }))
    }

    /// What a URL says, as in [`Client::new`]. What is said besides takes the place of the URL's; but whether there is TLS
    /// is the URL's to say: `rediss://`.
    pub fn at(url: &str) -> Self {
        let target = Target::read(url);
        Self { plain: target.as_ref().is_ok_and(|target| target.access.tls.is_none()), target }
    }

    /// The user. Default: the server's default user.
    pub fn user(self, name: &str) -> Self {
        self.with(|target| target.access_mut().login.user = Some(name.into()))
    }

    /// The password. Default: that of the environment, as for [`Client::new`], or none.
    pub fn password(self, password: &str) -> Self {
        self.with(|target| target.access_mut().login.password = Some(Password::Said(password.into())))
    }

    /// A file with the password, but for a line break at its end. It is read anew for each connection, so that a password
    /// that was rotated is picked up without a restart.
    pub fn password_file(self, path: impl Into<PathBuf>) -> Self {
        self.with(|target| {
            target.access_mut().login.password = Some(Password::file(path, "Servers::password_file"));
        })
    }

    /// The database's number. Default: 0.
    pub fn database(self, number: u32) -> Self {
        self.with(|target| target.access_mut().db = number.into())
    }

    /// The user at the sentinels, who is not that of the servers. Default: their default user.
    pub fn sentinel_user(self, name: &str) -> Self {
        self.with(|target| target.sentinel_access_mut().login.user = Some(name.into()))
    }

    /// The password at the sentinels, which is not that of the servers. Default: that of the environment, or none.
    pub fn sentinel_password(self, password: &str) -> Self {
        self.with(|target| {
            target.sentinel_access_mut().login.password = Some(Password::Said(password.into()));
        })
    }

    /// A file with the password at the sentinels, read anew for each connection.
    pub fn sentinel_password_file(self, path: impl Into<PathBuf>) -> Self {
        let file = Password::file(path, "Servers::sentinel_password_file");
        self.with(|target| target.sentinel_access_mut().login.password = Some(file))
    }

    /// TLS, with all servers and sentinels. Default: none. Needs the feature `tls`.
    pub fn tls(self, tls: Tls) -> Self {
        if self.plain {
            let target = self.target.and(Err(Error::invalid(
                "TLS is set, and the server URL says that there is none: say rediss:// in place of redis://",
            )));
            return Self { target, ..self };
        }
        self.with(|target| target.access_mut().tls = Some(tls))
    }

    fn of(endpoints: Result<Endpoints>) -> Self {
        Self { target: endpoints.map(Target::of), plain: false }
    }

    fn with(self, say: impl FnOnce(&mut Target)) -> Self {
        Self { target: self.target.map(|mut target| (say(&mut target), target).1), ..self }
    }
}

fn read_all<S: AsRef<str>>(servers: impl IntoIterator<Item = S>, default_port: u16) -> Result<Vec<Endpoint>> {
    servers.into_iter().map(|server| read(server.as_ref(), default_port)).collect()
}

/// What is at fault is not quoted: somebody may have put a URL there, with a password.
fn read(server: &str, default_port: u16) -> Result<Endpoint> {
    if server.contains("://") {
        return Err(Error::invalid(
            "a server is named by host and port, without a scheme: TLS is set by Servers::tls; a URL is read by \
             Servers::at",
        ));
    }
    let problem = |problem| Error::invalid(format!("a server cannot be read as host:port: {problem}"));
    Endpoint::read(server, default_port).map_err(problem)
}

impl TryFrom<Servers> for Client {
    type Error = Error;

    fn try_from(servers: Servers) -> Result<Self> {
        Ok(Self::over_target(&servers.target?.checked()?))
    }
}

impl fmt::Debug for Servers {
    /// Without users and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Ok(target) => write!(f, "Servers({}, tls: {:?})", target.endpoints, target.access.tls),
            Err(error) => write!(f, "Servers({error})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(servers: Servers) -> String {
        Client::try_from(servers).unwrap_err().to_string()
    }

    #[test]
    fn a_builder_says_what_a_url_says() {
        for (servers, url) in [
            (Servers::one("h"), "redis://h"),
            (Servers::one("[::1]:7000").user("u").password("p@").database(3), "redis://u:p%40@[::1]:7000/3"),
            (Servers::unix("/tmp/s"), "unix:///tmp/s"),
            (Servers::cluster(["h1:7000", "h2"]).password("p"), "redis+cluster://:p@h1:7000,h2"),
            (
                Servers::sentinel(["h1", "h2:1"], "m").sentinel_user("s").sentinel_password("q"),
                "redis+sentinel://h1,h2:1/m?sentinel_user=s&sentinel_password=q",
            ),
            (Servers::one("h").tls(Tls::new()), "rediss://h"),
            (Servers::at("rediss://h").tls(Tls::new()).user("u"), "rediss://u@h"),
        ] {
            let said = servers.target.unwrap();
            assert_eq!(said, Target::read(url).unwrap(), "{url}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_by_the_part_at_fault() {
        let none: [&str; 0] = [];
        for (servers, part) in [
            (Servers::one(""), "host is empty"),
            (Servers::one("h:0"), "its port"),
            (Servers::one("rediss://u:hunter2@h"), "Servers::at"),
            (Servers::one("u:hunter2@h"), "its port"),
            (Servers::cluster(none), "list of hosts is empty"),
            (Servers::cluster(["h1", "rediss://h2"]), "without a scheme"),
            (Servers::sentinel(none, "m"), "list of hosts is empty"),
            (Servers::sentinel(["h"], ""), "name of the master"),
            (Servers::one("h").sentinel_password("hunter2"), "there are no sentinels"),
            (Servers::at("redis://:hunter2@h").tls(Tls::new()), "rediss://"),
            (Servers::at("hunter2").tls(Tls::new()), "scheme"),
            (Servers::unix("/tmp/s").tls(Tls::new()), "Unix socket"),
        ] {
            let shown = format!("{servers:?}");
            let said = refusal(servers);
            assert!(said.contains(part), "{said}");
            assert!(!said.contains("hunter2") && !shown.contains("hunter2"), "{said} {shown}");
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        let servers = Servers::sentinel(["h"], "m")
            .user("someone")
            .password("hunter2")
            .sentinel_user("someone")
            .sentinel_password("hunter2");
        let shown = format!("{servers:?} {:?}", servers.target);
        assert!(!shown.contains("hunter2") && !shown.contains("someone"), "{shown}");
    }
}
