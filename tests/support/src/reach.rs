//! How clients reach a test's servers: the one place that decides it.
//!
//! As the simplest program does, unless the environment says otherwise: one server, plain TCP. With
//! `KEYLAPSE_TEST_TLS` clients come in over TLS, with `KEYLAPSE_TEST_TOPOLOGY=cluster` each server is a cluster
//! of one primary, with `KEYLAPSE_TEST_PROVIDER` a service that is imitated (docs/providers.md names them), and with `KEYLAPSE_TEST_LINE=segments` what a server says arrives in segments of 1,448 bytes. [`Server::url`](crate::Server::url) and [`Proxy::url`](crate::Proxy::url) say where that is.
//! What the harness itself has to say goes to a plain port, as the `default` user, in any case.

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

/// A folder with `ca.pem`, `server.pem` and `server.key`: `make test-more SUITE=tls` makes one.
const TLS: &str = "KEYLAPSE_TEST_TLS";
const TOPOLOGY: &str = "KEYLAPSE_TEST_TOPOLOGY";
const PROVIDER: &str = "KEYLAPSE_TEST_PROVIDER";
const LINE: &str = "KEYLAPSE_TEST_LINE";
/// By which a program that has nothing but a URL is told of its CA.
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
    /// What the environment says.
    ///
    /// # Panics
    ///
    /// If it says what cannot be.
    pub fn of_this_run() -> &'static Self {
        static REACH: OnceLock<Reach> = OnceLock::new();
        REACH.get_or_init(|| {
            let tls = said(TLS).map(PathBuf::from);
            assert!(
                tls.is_none() || cfg!(feature = "tls"),
                "{TLS} needs tests with TLS: see `make test-more SUITE=tls`"
            );
            if let Some(folder) = &tls {
                let ca = folder.join("ca.pem");
                let trusted = said(TRUSTED).is_some_and(|path| Path::new(&path) == ca);
                assert!(
                    trusted,
                    "with {TLS} the tests need {TRUSTED}={}: see `make test-more SUITE=tls`",
                    ca.display()
                );
            }
            let cluster = match said(TOPOLOGY).as_deref() {
                None => false,
                Some("cluster") => true,
                Some(other) => panic!("{TOPOLOGY} can be `cluster`, and is `{other}`"),
            };
            let segments = match said(LINE).as_deref() {
                None => false,
                Some("segments") => true,
                Some(other) => panic!("{LINE} can be `segments`, and is `{other}`"),
            };
            match said(PROVIDER) {
                Some(name) => {
                    assert!(
                        tls.is_none() && !cluster && !segments,
                        "with {PROVIDER} neither {TLS} nor {TOPOLOGY} nor {LINE} is possible"
                    );
                    Self::through(Provider::named(&name))
                }
                None => Self { tls, cluster, segments, provider: None },
            }
        })
    }

    /// A service, as this one is imitated.
    pub fn through(provider: &'static Provider) -> Self {
        let cluster = provider.shape == Shape::Cluster;
        Self { cluster, provider: Some(provider), ..Self::default() }
    }

    /// The service that is imitated, if one is.
    pub fn provider(&self) -> Option<&'static Provider> {
        self.provider
    }

    #[cfg(feature = "tls")]
    /// One server, over TLS, with the certificates of this folder.
    pub fn over_tls(folder: impl Into<PathBuf>) -> Self {
        Self { tls: Some(folder.into()), ..Self::default() }
    }

    /// Whether clients come in over TLS.
    pub fn is_over_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Where the files of TLS are, if clients speak it.
    pub(crate) fn tls(&self) -> Option<&Path> {
        self.tls.as_deref()
    }

    /// Whether the server is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// Returns whether the server has slots, whatever clients see of them.
    pub(crate) fn has_slots(&self) -> bool {
        self.cluster || self.provider.is_some_and(|provider| provider.shape == Shape::Shards)
    }

    /// Whether what a server says arrives in small segments. Nodes of a cluster announce their own ports.
    pub(crate) fn is_in_segments(&self) -> bool {
        self.segments && !self.cluster
    }

    /// The URL for whoever logs in so, where this is listened at.
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

    /// What a server has to be told, whose clients come in at this port.
    pub(crate) fn settings(&self, door: u16) -> Vec<(String, String)> {
        let mut settings =
            self.tls.as_ref().map(|folder| conf::tls_settings(folder, door)).unwrap_or_default();
        if self.has_slots() {
            // Clients are sent to the host by which they have come: a proxy's, or the server's.
            let lines = [("cluster-enabled", "yes"), ("cluster-preferred-endpoint-type", "unknown-endpoint")];
            settings.extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        settings
    }

    /// The settings of a service's server.
    pub(crate) fn of_provider(&self) -> Vec<(String, String)> {
        let settings = self.provider.map_or(&[][..], |provider| provider.settings);
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

/// Whether this run is on clusters, which is said then: for tests of what a server alone has.
pub fn skipped_on_a_cluster(why: &str) -> bool {
    let is_skipped = Reach::of_this_run().cluster;
    if is_skipped {
        skipped(&format!("on a cluster {why}"));
    }
    is_skipped
}

fn said(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}
