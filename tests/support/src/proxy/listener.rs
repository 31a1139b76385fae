//! The port to which clients connect.

use std::{
    net::{Ipv4Addr, Shutdown, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::connection::{self, Shared};
use crate::{Deadline, port};

const BIND_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// A listening socket that refuses connections as soon as it is dropped.
#[derive(Debug)]
pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) async fn on_any_port() -> Self {
        loop {
            // If another process has taken the port first, the loop tries the next.
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port::candidate())).await {
                return Self(listener);
            }
        }
    }

    /// Listens at an address that may still be in use for a short time.
    pub(super) async fn on(address: SocketAddr) -> Self {
        let deadline = Deadline::after(BIND_TIMEOUT);
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return Self(listener),
                Err(error) => {
                    assert!(!deadline.is_over(), "the proxy's address {address} stayed in use: {error}");
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Listens at this port of the first address from 127.0.0.2 to 127.0.0.9 on which it is free.
    pub(crate) async fn beside(port: u16) -> Self {
        for last in 2..=9 {
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).await {
                return Self(listener);
            }
        }
        panic!("port {port} is in use on all addresses from 127.0.0.2 to 127.0.0.9");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket has an address")
    }

    /// Waits for the next client.
    pub(crate) async fn accept(&self) -> TcpStream {
        loop {
            match self.0.accept().await {
                Ok((client, _)) => return client,
                // The reason is temporary, such as too many open files.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    pub(super) async fn serve_all(self, shared: Arc<Shared>) {
        loop {
            let client = self.accept().await;
            let shared = Arc::clone(&shared);
            // The subscription is outside of the task, which would miss a cut before its first poll.
            let cut = shared.faults.cuts.subscribe();
            tokio::spawn(async move { connection::serve(client, &shared, cut).await });
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Closing the socket is not enough: a child process between fork and exec has a copy of each socket, and its copy
        // would still accept connections.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}
