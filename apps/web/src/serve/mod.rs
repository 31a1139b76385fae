//! Serves routes at an address, to a bounded number of connections.

mod certificate;
mod connection;
mod seats;

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

pub(crate) use self::connection::Closing;
pub(crate) use self::seats::Seat;

use self::connection::Connection;
use self::seats::Seats;
use crate::access::Access;
use crate::patience::Patience;

/// How long answers that have begun are waited for at the end.
const GRACE: Duration = Duration::from_secs(5);
/// After a connection could not be taken: mostly the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves at an address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    certificate: Option<Certificate>,
    patience: Patience,
}

/// Why nothing can be served.
#[derive(Debug)]
pub enum ServeError {
    /// It is reached from elsewhere, and nobody has to show a token.
    Open(SocketAddr),
    /// The address cannot be had.
    Address(SocketAddr, io::Error),
    /// The certificate or its key cannot be used: which, and why.
    Certificate(String),
}

impl Server {
    /// Takes an address. Beyond loopback only for those who have a token.
    ///
    /// # Errors
    /// When nobody would have to show one, or the address cannot be had.
    pub async fn bind(
        address: SocketAddr,
        access: &Access,
        certificate: Option<Certificate>,
    ) -> Result<Self, ServeError> {
        if !address.ip().is_loopback() {
            if !access.has_tokens() {
                return Err(ServeError::Open(address));
            }
            if certificate.is_none() {
                warn!(%address, "tokens are sent in the clear: have a proxy with TLS before this, or give a certificate");
            }
        }
        let listener =
            TcpListener::bind(address).await.map_err(|error| ServeError::Address(address, error))?;
        Ok(Self { listener, certificate, patience: Patience::default() })
    }

    /// How long clients are waited for, and how many there may be.
    #[must_use]
    pub fn patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// The address, with the port that was chosen.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves these routes until it is told to stop; then finishes answers that have begun, for up to 5 s.
    pub async fn run(self, routes: Router, stop: impl Future<Output = ()>) {
        let seats = Seats::new(self.patience.connections);
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
                    warn!(%error, "a connection cannot be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let seat = tokio::select! {
                () = &mut stop => break,
                seat = seats.take() => seat,
            };
            let (closed, patience) = (Closing::new(closed.clone()), self.patience);
            let connection = Connection { routes: routes.clone(), from, seat, closed, patience };
            let acceptor =
                self.certificate.as_ref().map(|certificate| TlsAcceptor::from(certificate.config()));
            running.spawn(connection.begin(stream, acceptor));
        }
        drop(closing);
        drop(self.listener);
        let ended = async { while running.join_next().await.is_some() {} };
        if timeout(GRACE, ended).await.is_err() {
            debug!("connections are cut that have not ended");
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(address) => {
                write!(
                    f,
                    "{address} is reached from elsewhere, and nobody would have to show a token: give a --token-file, or listen at 127.0.0.1"
                )
            }
            Self::Address(address, error) => write!(f, "{address} cannot be had: {error}"),
            Self::Certificate(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ServeError {}
