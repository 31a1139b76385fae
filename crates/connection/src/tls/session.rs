//! One session of TLS over a stream.

use std::sync::Arc;

use redis::RedisError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::carried::io_error;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::stream::Stream;
use crate::tls::Tls;
use crate::tls::config::config;
use crate::tls::failure::Failure;

/// How a session is begun, by what the files say at this moment.
pub(crate) struct Context {
    config: Arc<ClientConfig>,
    tls: Tls,
}

impl Context {
    /// Reads the files.
    pub(crate) fn new(tls: &Tls) -> Result<Self> {
        Ok(Self { config: Arc::new(config(tls)?), tls: tls.clone() })
    }

    /// The handshake.
    pub(crate) async fn begin(
        &self,
        stream: Box<dyn Stream>,
        endpoint: &Endpoint,
    ) -> Result<Box<dyn Stream>> {
        let name = self.name(endpoint)?;
        match TlsConnector::from(self.config.clone()).connect(name, stream).await {
            Ok(session) => Ok(Box::new(session)),
            Err(error) => Err(self.failure().during_handshake(&error)),
        }
    }

    /// What is behind an error of a session that stands, if that is TLS.
    pub(crate) fn explain(&self, error: &RedisError) -> Option<Error> {
        self.failure().afterwards(io_error(error)?)
    }

    fn failure(&self) -> Failure {
        Failure { has_ca_file: self.tls.ca_file.is_some(), has_certificate: self.tls.client.is_some() }
    }

    fn name(&self, endpoint: &Endpoint) -> Result<ServerName<'static>> {
        let host = match (&self.tls.server_name, endpoint) {
            (Some(name), _) => name,
            (None, Endpoint::Tcp { host, .. }) => host,
            (None, Endpoint::Unix(_)) => "",
        };
        name_of(host)
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        Error::new(
            ErrorKind::Invalid,
            "the host is nothing that a certificate can name: set Tls::server_name to a name of the certificate",
        )
    })
}

impl Tls {
    /// Refuses what no certificate can have. Files are looked at when there is something to connect.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.server_name {
            Some(name) if name_of(name).is_err() => {
                Err(Error::invalid("Tls::server_name is neither a DNS name nor an address"))
            }
            _ => Ok(()),
        }
    }
}
