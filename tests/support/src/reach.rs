//! Decides how clients reach the servers of tests.
//!
//! By default clients connect to one server over plain TCP. Variables of the environment change this:
//!
//! - `KEYLAPSE_TEST_TLS`: clients connect over TLS, with the certificates of this folder.
//! - `KEYLAPSE_TEST_TOPOLOGY=cluster`: each server is a cluster of one primary.
//! - `KEYLAPSE_TEST_PROVIDER`: each server imitates this service of docs/providers.md.
//! - `KEYLAPSE_TEST_LINE=segments`: replies arrive in segments of 1,448 bytes.
//!
//! [`Server::url`](crate::Server::url) and [`Proxy::url`](crate::Proxy::url) return the URL for clients. The harness itself
//! always connects to a plain port, as the `default` user.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{
    conf,
    provider::{Provider, Shape},
    skipped,
};

/// Names a folder with `ca.pem`, `server.pem` and `server.key`. `make test-more SUITE=tls` creates one.
const TLS: &str = "KEYLAPSE_TEST_TLS";
const TOPOLOGY: &str = "KEYLAPSE_TEST_TOPOLOGY";
const PROVIDER: &str = "KEYLAPSE_TEST_PROVIDER";
const LINE: &str = "KEYLAPSE_TEST_LINE";
/// Names the file of the CA, for programs whose only setting is a URL.
pub(crate) const TRUSTED: &str = "SSL_CERT_FILE";

/// How clients reach a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    tls: Option<PathBuf>,
    cluster: bool,
    segments: bool,
    provider: Option<&'static Provider>,
}

impl Reach {
    /// Returns the settings of the environment.
    ///
    /// # Panics
    ///
    /// If a value is invalid, or two settings exclude each other.
    pub fn of_this_run() -> &'static Self {
        static REACH: OnceLock<Reach> = OnceLock::new();
        REACH.get_or_init(|| {
            let tls = setting(TLS).map(PathBuf::from);
            assert!(
                tls.is_none() || cfg!(feature = "tls"),
                "{TLS} needs tests with TLS: see `make test-more SUITE=tls`"
            );
            if let Some(folder) = &tls {
                let ca = folder.join("ca.pem");
                let trusted = setting(TRUSTED).is_some_and(|path| Path::new(&path) == ca);
                assert!(
                    trusted,
                    "with {TLS} the tests need {TRUSTED}={}: see `make test-more SUITE=tls`",
                    ca.display()
                );
            }
            let cluster = match setting(TOPOLOGY).as_deref() {
                None => false,
                Some("cluster") => true,
                Some(other) => panic!("{TOPOLOGY} is `{other}`: set it to `cluster` or unset it"),
            };
            let segments = match setting(LINE).as_deref() {
                None => false,
                Some("segments") => true,
                Some(other) => panic!("{LINE} is `{other}`: set it to `segments` or unset it"),
            };
            match setting(PROVIDER) {
                Some(name) => {
                    assert!(
                        tls.is_none() && !cluster && !segments,
                        "{PROVIDER} excludes {TLS}, {TOPOLOGY} and {LINE}: unset these"
                    );
                    Self::through(Provider::named(&name))
                }
                None => Self { tls, cluster, segments, provider: None },
            }
        })
    }

    /// Imitates this service.
    pub fn through(provider: &'static Provider) -> Self {
        let cluster = provider.shape == Shape::Cluster;
        Self { cluster, provider: Some(provider), ..Self::default() }
    }

    /// Returns the imitated service.
    pub fn provider(&self) -> Option<&'static Provider> {
        self.provider
    }

    /// Connects to one server over TLS, with the certificates of this folder.
    #[cfg(feature = "tls")]
    pub fn over_tls(folder: impl Into<PathBuf>) -> Self {
        Self { tls: Some(folder.into()), ..Self::default() }
    }

    /// Returns whether clients connect over TLS.
    pub fn is_over_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the folder of the certificates, if clients connect over TLS.
    pub(crate) fn tls(&self) -> Option<&Path> {
        self.tls.as_deref()
    }

    /// Returns whether the server is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// Returns whether the server has slots, even if clients cannot see them.
    pub(crate) fn has_slots(&self) -> bool {
        self.cluster || self.provider.is_some_and(|provider| provider.shape == Shape::Shards)
    }

    /// Returns whether replies arrive in small segments. Those of a cluster do not, because nodes announce their own ports.
    pub(crate) fn is_in_segments(&self) -> bool {
        self.segments && !self.cluster
    }

    /// Returns the URL of this address, with a user and a password.
    pub(crate) fn url(&self, login: Option<(&str, &str)>, address: SocketAddr) -> String {
        let scheme = match (self.cluster, &self.tls) {
            (false, None) => "redis",
            (false, Some(_)) => "rediss",
            (true, None) => "redis+cluster",
            (true, Some(_)) => "rediss+cluster",
        };
        match login {
            Some((user, password)) => format!("{scheme}://{user}:{password}@{address}/"),
            None => format!("{scheme}://{address}/"),
        }
    }

    /// Returns the settings of a server whose clients connect to the port `door`.
    pub(crate) fn settings(&self, door: u16) -> Vec<(String, String)> {
        let mut settings =
            self.tls.as_ref().map(|folder| conf::tls_settings(folder, door)).unwrap_or_default();
        if self.has_slots() {
            // Redirects name the host to which the client has connected: that of the proxy or that of the server.
            let lines = [("cluster-enabled", "yes"), ("cluster-preferred-endpoint-type", "unknown-endpoint")];
            settings.extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        settings
    }

    /// Returns the settings of the imitated service.
    pub(crate) fn of_provider(&self) -> Vec<(String, String)> {
        let settings = self.provider.map_or(&[][..], |provider| provider.settings);
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

/// Returns whether this run is on clusters, and reports a skipped test then. Tests that need one server call it.
pub fn skipped_on_a_cluster(why: &str) -> bool {
    let is_skipped = Reach::of_this_run().cluster;
    if is_skipped {
        skipped(&format!("on a cluster {why}"));
    }
    is_skipped
}

fn setting(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}
