//! Serves routes at an address, to a bounded number of connections.

mod certificate;
mod connection;
mod slots;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

pub use self::certificate::Certificate;

pub(crate) use self::connection::ServerShutdown;
pub(crate) use self::slots::ConnectionSlot;

use self::connection::Connection;
use self::slots::ConnectionSlots;
use crate::access::Access;
use crate::limits::ServerLimits;

/// How long a shutdown waits for answers that have begun.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which mostly means that the process has no file descriptors left.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// An HTTP server that is bound to an address.
#[derive(Debug)]
pub struct WebServer {
    listener: TcpListener,
    certificate: Option<Certificate>,
    limits: ServerLimits,
}

/// Error of [`WebServer::bind`] and [`Certificate::read`].
#[derive(Debug)]
pub enum ServeError {
    /// Other machines can reach the address, and no token is required.
    TokenRequired(SocketAddr),
    /// The address cannot be bound.
    Address(SocketAddr, io::Error),
    /// The certificate or its key cannot be used. The text names the file and the reason.
    Certificate(String),
}

impl WebServer {
    /// Binds an address. Any address but loopback requires tokens.
    ///
    /// # Errors
    /// If the address is not loopback and `access` has no tokens, or if the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        access: &Access,
        certificate: Option<Certificate>,
    ) -> Result<Self, ServeError> {
        if !address.ip().is_loopback() {
            if !access.has_tokens() {
                return Err(ServeError::TokenRequired(address));
            }
            if certificate.is_none() {
                warn!(%address, "tokens are sent unencrypted: put a proxy with TLS before this server, or give a certificate");
            }
        }
        let listener =
            TcpListener::bind(address).await.map_err(|error| ServeError::Address(address, error))?;
        Ok(Self { listener, certificate, limits: ServerLimits::default() })
    }

    /// Sets the timeouts for clients, and the maximum of connections.
    #[must_use]
    pub fn limits(self, limits: ServerLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the address, with the port that the system chose.
    ///
    /// # Errors
    /// If the system does not return the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves these routes until `stop` completes. Then finishes answers that have begun, for up to 5 s.
    pub async fn run(self, routes: Router, stop: impl Future<Output = ()>) {
        let slots = ConnectionSlots::new(self.limits.connections);
        let (closing, closed) = watch::channel(());
        let mut running = JoinSet::new();
        tokio::pin!(stop);
        loop {
            while running.try_join_next().is_some() {}
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                    continue;
                }
            };
            let slot = tokio::select! {
                () = &mut stop => break,
                slot = slots.take() => slot,
            };
            let (closed, limits) = (ServerShutdown::new(closed.clone()), self.limits);
            let connection = Connection { routes: routes.clone(), from, slot, closed, limits };
            let acceptor =
                self.certificate.as_ref().map(|certificate| TlsAcceptor::from(certificate.config()));
            running.spawn(connection.begin(stream, acceptor));
        }
        drop(closing);
        drop(self.listener);
        let ended = async { while running.join_next().await.is_some() {} };
        if timeout(GRACE, ended).await.is_err() {
            debug!("closing connections that have not ended in time");
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenRequired(address) => {
                write!(
                    f,
                    "refusing to listen at {address} without a token, because other machines can reach it: give a --token-file, or listen at 127.0.0.1"
                )
            }
            Self::Address(address, error) => write!(f, "cannot listen at {address}: {error}"),
            Self::Certificate(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ServeError {}
