//! TLS: what a program says of it, and sessions by `rustls`.
//!
//! Nothing is kept between two connections: each reads certificates and keys anew, so that rotated ones are picked up.

#[cfg(feature = "tls")]
mod session;

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
pub(super) use self::absent::Context;
#[cfg(feature = "tls")]
pub(super) use self::session::Context;

/// How TLS is spoken with servers and sentinels: for `keylapse::Servers::tls`.
///
/// The server's certificate is always verified; there is no way to turn that off. Without
/// [`ca_file`](Tls::ca_file) the certificates that the platform trusts are, or those in the file that the environment
/// variable `SSL_CERT_FILE` names and in the folders of `SSL_CERT_DIR`, which is how a program that takes nothing but a
/// `rediss://` URL is told of its own CA.
///
/// All files are PEM, and are read anew for each connection: a certificate that was rotated is used from the next
/// connection on, without a restart. Needs the feature `tls`.
///
/// ```
/// # use keylapse_connection as keylapse;
/// # use keylapse::Tls;
/// let tls = Tls::new()
///     .ca_file("/etc/redis/ca.pem")
///     .client_certificate("/run/secrets/billing.pem", "/run/secrets/billing.key");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "each setting returns the changed settings"]
pub struct Tls {
    ca_file: Option<PathBuf>,
    client: Option<ClientFiles>,
    server_name: Option<String>,
}

/// Where a client's certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// TLS 1.2 or 1.3, with what the platform trusts, and no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// The certificates of the CAs that are trusted, and no others. Default: the platform's.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { ca_file: Some(path.into()), ..self }
    }

    /// A certificate to present, with those between it and its CA, and its private key, which is not encrypted: for
    /// servers with `tls-auth-clients`, which is Redis' default. Default: none.
    pub fn client_certificate(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let client = ClientFiles { certificate: certificate.into(), key: key.into() };
        Self { client: Some(client), ..self }
    }

    /// The name that each server's certificate has to have, in place of the host: where hosts are addresses, or names
    /// that the certificate does not have. Default: the host.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }
}

/// Without the feature `tls` there are no sessions. Whoever asks for one is refused long before.
#[cfg(not(feature = "tls"))]
mod absent {
    use std::convert::Infallible;

    use redis::RedisError;

    use crate::address::Endpoint;
    use crate::error::{Error, Result};
    use crate::stream::Stream;
    use crate::tls::Tls;

    /// There is none.
    pub(crate) struct Context(Infallible);

    impl Context {
        pub(crate) fn new(_: &Tls) -> Result<Self> {
            Err(Error::invalid("TLS needs keylapse's feature `tls`"))
        }

        pub(crate) async fn begin(&self, _: Box<dyn Stream>, _: &Endpoint) -> Result<Box<dyn Stream>> {
            match self.0 {}
        }

        pub(crate) fn explain(&self, _: &RedisError) -> Option<Error> {
            match self.0 {}
        }
    }

    impl Tls {
        pub(crate) fn check(&self) -> Result<()> {
            Ok(())
        }
    }
}
