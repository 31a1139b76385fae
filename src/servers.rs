//! Servers and logins as a builder, instead of a URL.

use std::fmt;
use std::path::PathBuf;

use crate::client::Client;
use crate::connection::{Endpoint, Endpoints, Password, SENTINEL_PORT, SERVER_PORT, Target, Tls};
use crate::error::{Error, Result};

/// Servers, logins and TLS: a builder for the settings of a URL.
///
/// A function that takes a [`Client`] also takes `Servers`. It returns an error that names the part if the settings
/// cannot work.
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
/// Without a password here, the client takes one from the environment, as for [`Client::new`].
#[derive(Clone)]
#[must_use = "each setting returns the changed servers"]
pub struct Servers {
    /// The settings so far, unchecked, or the first error.
    pub(crate) target: Result<Target>,
    /// True if a URL excludes TLS.
    plain: bool,
}

impl Servers {
    /// Returns settings for one server: `host` or `host:port`, with an IPv6 address in brackets. The default port is 6379.
    pub fn one(server: &str) -> Self {
        Self::of(read(server, SERVER_PORT).map(Endpoints::One))
    }

    /// Returns settings for one server behind a Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::of(Ok(Endpoints::One(Endpoint::Unix(path.into()))))
    }

    /// Returns settings for a cluster, with the addresses of some of its nodes. Any of them may be down. The default
    /// port is 6379.
    pub fn cluster<S: AsRef<str>>(nodes: impl IntoIterator<Item = S>) -> Self {
        Self::of(read_all(nodes, SERVER_PORT).map(Endpoints::Cluster))
    }

    /// Returns settings for the servers that sentinels monitor under a master's name. Any of the sentinels may be down. The
    /// default port is 26379.
    pub fn sentinel<S: AsRef<str>>(sentinels: impl IntoIterator<Item = S>, master: &str) -> Self {
        let master = master.to_owned();
        let sentinels = read_all(sentinels, SENTINEL_PORT);
        Self::of(sentinels.map(|sentinels| Endpoints::Sentinel { sentinels, master }))
    }

    /// Reads a URL, as [`Client::new`] does. Later settings replace those of the URL. Only the URL decides about TLS:
    /// [`tls`](Self::tls) needs the scheme `rediss://`.
    pub fn at(url: &str) -> Self {
        let target = Target::read(url);
        Self { plain: target.as_ref().is_ok_and(|target| target.options.tls.is_none()), target }
    }

    /// Sets the user. Default: the server's default user.
    pub fn user(self, name: &str) -> Self {
        self.with(|target| target.options_mut().login.user = Some(name.into()))
    }

    /// Sets the password. Default: the password of the environment, as for [`Client::new`], or none.
    pub fn password(self, password: &str) -> Self {
        self.with(|target| target.options_mut().login.password = Some(Password::Literal(password.into())))
    }

    /// Reads the password from a file, without a line break at its end. The file is read again for each connection,
    /// so a rotated password needs no restart.
    pub fn password_file(self, path: impl Into<PathBuf>) -> Self {
        self.with(|target| {
            target.options_mut().login.password = Some(Password::file(path, "Servers::password_file"));
        })
    }

    /// Sets the number of the database. Default: 0.
    pub fn database(self, number: u32) -> Self {
        self.with(|target| target.options_mut().db = number.into())
    }

    /// Sets the user at the sentinels, which have a login of their own. Default: their default user.
    pub fn sentinel_user(self, name: &str) -> Self {
        self.with(|target| target.sentinel_options_mut().login.user = Some(name.into()))
    }

    /// Sets the password at the sentinels. Default: the password of the environment, as for [`Client::new`], or none.
    pub fn sentinel_password(self, password: &str) -> Self {
        self.with(|target| {
            target.sentinel_options_mut().login.password = Some(Password::Literal(password.into()));
        })
    }

    /// Reads the password at the sentinels from a file, again for each connection.
    pub fn sentinel_password_file(self, path: impl Into<PathBuf>) -> Self {
        let file = Password::file(path, "Servers::sentinel_password_file");
        self.with(|target| target.sentinel_options_mut().login.password = Some(file))
    }

    /// Connects to all servers and sentinels with TLS, which needs the feature `tls`. Default: no TLS.
    pub fn tls(self, tls: Tls) -> Self {
        if self.plain {
            let target = self.target.and(Err(Error::invalid(
                "Servers::tls contradicts the scheme of the server URL: write rediss:// instead of redis://",
            )));
            return Self { target, ..self };
        }
        self.with(|target| target.options_mut().tls = Some(tls))
    }

    fn of(endpoints: Result<Endpoints>) -> Self {
        Self { target: endpoints.map(Target::of), plain: false }
    }

    fn with(self, change: impl FnOnce(&mut Target)) -> Self {
        Self { target: self.target.map(|mut target| (change(&mut target), target).1), ..self }
    }
}

fn read_all<S: AsRef<str>>(servers: impl IntoIterator<Item = S>, default_port: u16) -> Result<Vec<Endpoint>> {
    servers.into_iter().map(|server| read(server.as_ref(), default_port)).collect()
}

/// Parses `host:port`. The error never quotes the text, which may be a URL with a password.
fn read(server: &str, default_port: u16) -> Result<Endpoint> {
    if server.contains("://") {
        return Err(Error::invalid(
            "a server has a URL scheme, but Servers takes host:port without a scheme: set TLS with Servers::tls, \
             or pass a URL to Servers::at",
        ));
    }
    let problem = |problem| Error::invalid(format!("invalid server, expected host:port: {problem}"));
    Endpoint::read(server, default_port).map_err(problem)
}

impl TryFrom<Servers> for Client {
    type Error = Error;

    fn try_from(servers: Servers) -> Result<Self> {
        Ok(Self::over_target(&servers.target?.checked()?))
    }
}

impl fmt::Debug for Servers {
    /// Omits users and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Ok(target) => write!(f, "Servers({}, tls: {:?})", target.endpoints, target.options.tls),
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
    fn a_builder_and_a_url_give_the_same_target() {
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
            let target = servers.target.unwrap();
            assert_eq!(target, Target::read(url).unwrap(), "{url}");
        }
    }

    #[test]
    fn a_refusal_names_the_part_at_fault() {
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
            let message = refusal(servers);
            assert!(message.contains(part), "{message}");
            assert!(!message.contains("hunter2") && !shown.contains("hunter2"), "{message} {shown}");
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
