//! TLS settings, and sessions of `rustls`.
//!
//! Each connection reads the certificates and keys again, so that rotated files take effect without a restart.

#[cfg(feature = "tls")]
mod session;

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
pub(super) use self::absent::AbsentTls as TlsContext;
#[cfg(feature = "tls")]
pub(super) use self::session::TlsContext;

/// The TLS settings for servers and sentinels: for `keylapse::Servers::tls`.
///
/// The server's certificate is always verified; this cannot be turned off. Without [`ca_file`](Tls::ca_file) the platform's
/// CA certificates are trusted. The environment variables `SSL_CERT_FILE` (a file) and `SSL_CERT_DIR` (folders) replace
/// them. A program whose only setting is a `rediss://` URL can use its own CA this way.
///
/// All files are PEM. Each connection reads them again, so a rotated certificate takes effect without a restart. Needs the
/// feature `tls`.
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Returns the default settings: TLS 1.2 or 1.3, the platform's CA certificates, no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only the CA certificates in this file. Default: the platform's.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { ca_file: Some(path.into()), ..self }
    }

    /// Presents a client certificate, which servers with `tls-auth-clients` require, as is Redis' default. The file of the
    /// certificate includes all intermediate certificates. The private key must not be encrypted. Default: none.
    pub fn client_certificate(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let client = ClientFiles { certificate: certificate.into(), key: key.into() };
        Self { client: Some(client), ..self }
    }

    /// Sets the name that each server's certificate must have. Use this if hosts are addresses, or names that are not in the
    /// certificate. Default: the host.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }
}

/// Replaces the sessions without the feature `tls`. It is never used, as `Target::checked` refuses TLS then.
#[cfg(not(feature = "tls"))]
mod absent {
    use std::convert::Infallible;

    use redis::RedisError;

    use crate::address::Endpoint;
    use crate::error::{Error, Result};
    use crate::stream::Stream;
    use crate::tls::Tls;

    /// A TLS context that cannot exist.
    pub(crate) struct AbsentTls(Infallible);

    impl AbsentTls {
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
