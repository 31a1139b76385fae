//! The port that clients connect to.

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

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// A listening socket that refuses connections from the moment it is dropped.
#[derive(Debug)]
pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) async fn on_any_port() -> Self {
        loop {
            // Somebody may be quicker to take it; then the next one.
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port::candidate())).await {
                return Self(listener);
            }
        }
    }

    /// Listens at an address that may have been in use a moment ago.
    pub(super) async fn on(address: SocketAddr) -> Self {
        let deadline = Deadline::after(PATIENCE);
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

    /// Listens at this port of the first host of 127.0.0.2 to 127.0.0.9 that has it free.
    pub(crate) async fn beside(port: u16) -> Self {
        for last in 2..=9 {
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).await {
                return Self(listener);
            }
        }
        panic!("port {port} is taken on each of 127.0.0.2 to 127.0.0.9");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket has an address")
    }

    /// The next client.
    pub(crate) async fn accept(&self) -> TcpStream {
        loop {
            match self.0.accept().await {
                Ok((client, _)) => return client,
                // For reasons that pass, such as too many open files.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    pub(super) async fn serve_all(self, shared: Arc<Shared>) {
        loop {
            let client = self.accept().await;
            let shared = Arc::clone(&shared);
            // Subscribed here, or a cut before the task first runs would be missed.
            let cut = shared.faults.cuts.subscribe();
            tokio::spawn(async move { connection::serve(client, &shared, cut).await });
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Closing is not enough: while another thread starts a process, that one holds a copy of
        // every socket until it becomes its own program, and the port would go on accepting.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}
