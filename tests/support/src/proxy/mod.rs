//! A TCP proxy between clients and a server. Tests use it to inject faults.
//!
//! The proxy parses the protocol, so that it can lose the reply to one request *after* the server has executed it. This
//! fault shows whether a client may repeat the request. [`frame`] parses bytes, [`dialogue`] finds the request of each
//! reply, [`faults`] has the faults that tests set, and [`connection`] applies them.

mod connection;
mod counters;
mod delivery;
mod dialogue;
mod faults;
mod frame;
mod listener;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    panic::Location,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::Mutex, task::JoinHandle, time::timeout};

use self::{
    connection::Shared,
    counters::Counters,
    faults::{Cut, Faults},
};
use crate::{APP_PASSWORD, APP_USER, Reach, Server, tls};

pub(crate) use connection::Session;
pub use faults::{Denial, Direction, Then, any, command};
pub(crate) use frame::Frame;
pub(crate) use listener::Listener;

/// The time limit of [`Proxy::until_lost`].
const LOSS_TIMEOUT: Duration = Duration::from_secs(30);

/// A proxy on its own port. The proxy and its connections end when this value is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    reach: Reach,
    shared: Arc<Shared>,
    /// The task that owns the listening socket, or `None` while the proxy refuses connections.
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// The address of proxies that have the ports of their servers. Linux has all of 127.0.0.0/8 on loopback.
    pub const BESIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    /// Starts a proxy before this server. Clients reach the proxy in the same way as the server. The proxy reaches the
    /// server also after its restarts.
    pub async fn before(server: &Server) -> Self {
        let reach = server.reach();
        let listener = match reach.is_cluster() {
            // A node announces its own port, and the host to which the client has connected.
            true => Listener::beside(server.door().port()).await,
            false => Listener::on_any_port().await,
        };
        Self::serving(listener, server.behind(), reach.clone())
    }

    /// Starts a proxy before the server on this port of 127.0.0.1.
    pub async fn before_port(upstream: u16) -> Self {
        let upstream = (Ipv4Addr::LOCALHOST, upstream).into();
        Self::serving(Listener::on_any_port().await, upstream, Reach::default())
    }

    /// Starts a proxy on 127.0.0.2 before the server on the same port of 127.0.0.1. If the nodes of a cluster announce this
    /// host and their own ports, clients connect through these proxies. The nodes connect to each other without them.
    pub async fn beside_port(upstream: u16) -> Self {
        let listener = Listener::on((Self::BESIDE, upstream).into()).await;
        Self::serving(listener, (Ipv4Addr::LOCALHOST, upstream).into(), Reach::default())
    }

    fn serving(listener: Listener, upstream: SocketAddr, reach: Reach) -> Self {
        let shared = Arc::new(Shared {
            upstream,
            tls: reach.tls().map(tls::Acceptor::of),
            faults: Faults::none(),
            counters: Counters::default(),
        });
        let address = listener.address();
        let accepting = tokio::spawn(listener.serve_all(Arc::clone(&shared)));
        Self { address, reach, shared, accepting: Mutex::new(Some(accepting)) }
    }

    /// Returns the port, which [`refuse`](Self::refuse) does not change.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for the `default` user.
    pub fn url(&self) -> String {
        self.reach.url(None, self.address)
    }

    /// Returns the URL for this user. The name and the password are not encoded.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.reach.url(Some((user, password)), self.address)
    }

    /// Returns the URL for the user of `redis.conf` with the least permissions.
    pub fn app_url(&self) -> String {
        self.url_for(APP_USER, APP_PASSWORD)
    }

    /// Loses the reply to the next request that matches. The server executes the request. The predicate receives the words
    /// of a request; [`command`] returns a predicate for a name.
    pub fn lose_reply(&self, matches: impl Fn(&[Bytes]) -> bool + Send + 'static, then: Then) {
        self.lose_replies(1, matches, then);
    }

    /// Loses the replies to the next `count` requests that match, on any connection. A request that matches several rules
    /// counts for the oldest.
    pub fn lose_replies(
        &self,
        count: usize,
        matches: impl Fn(&[Bytes]) -> bool + Send + 'static,
        then: Then,
    ) {
        self.shared.faults.lose(count, Box::new(matches), then);
    }

    /// Denies matching requests until [`heal`](Self::heal), like a proxy that supports only some commands.
    pub fn deny(&self, matches: impl Fn(&[Bytes]) -> bool + Send + 'static, denial: Denial) {
        self.shared.faults.deny(Box::new(matches), denial);
    }

    /// Returns the number of lost replies.
    pub fn lost(&self) -> usize {
        *self.shared.faults.lost.borrow()
    }

    /// Waits until the number of lost replies is at least `count`.
    ///
    /// # Panics
    ///
    /// If this takes more than 30 seconds.
    #[track_caller]
    pub fn until_lost(&self, count: usize) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let mut lost = self.shared.faults.lost.subscribe();
            let in_time = timeout(LOSS_TIMEOUT, lost.wait_for(|lost| *lost >= count)).await.is_ok();
            assert!(
                in_time,
                "waited {LOSS_TIMEOUT:?} for {count} lost replies, but only {} were lost, of {:?}, at {caller}",
                self.lost(),
                self.requests(),
            );
        }
    }

    /// Refuses new connections from now on, like a port on which nothing listens. Open connections stay.
    pub async fn refuse(&self) {
        if let Some(task) = self.accepting.lock().await.take() {
            task.abort();
            // The socket closes when the task has ended, which is after the call of `abort`.
            let _ = task.await;
        }
    }

    /// Accepts connections again.
    pub async fn accept(&self) {
        let mut accepting = self.accepting.lock().await;
        if accepting.is_none() {
            let listener = Listener::on(self.address).await;
            *accepting = Some(tokio::spawn(listener.serve_all(Arc::clone(&self.shared))));
        }
    }

    /// Closes all current connections.
    pub fn cut(&self) {
        self.shared.faults.cuts.send_replace(Cut::Close);
    }

    /// Resets all current connections (RST). Bytes that have not arrived are lost.
    pub fn reset(&self) {
        self.shared.faults.cuts.send_replace(Cut::Reset);
    }

    /// Holds back all bytes of this direction, on open and new connections, until [`resume`](Self::resume). Clients see a
    /// connection that is open but dead.
    pub fn stall(&self, direction: Direction) {
        self.shared.faults.change(direction, |weather| weather.is_stalled = true);
    }

    /// Delivers the bytes that [`stall`](Self::stall) held back, and ends the stall.
    pub fn resume(&self) {
        self.shared.faults.change(Direction::Both, |weather| weather.is_stalled = false);
    }

    /// Delays all bytes of this direction by this time. Zero ends the delay.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.shared.faults.change(direction, |weather| weather.delay = delay);
    }

    /// Writes the bytes of this direction in pieces of this size. `None` ends it.
    pub fn split(&self, direction: Direction, bytes: Option<NonZeroUsize>) {
        self.shared.faults.change(direction, |weather| weather.chunk = bytes);
    }

    /// Drops published messages on new connections, if `hushed` is true. Subscriptions are confirmed but deliver nothing.
    /// Open connections do not change.
    pub fn hush(&self, hushed: bool) {
        self.shared.faults.hushed.store(hushed, Ordering::Relaxed);
    }

    /// Closes each connection after this many bytes from the server, also in the middle of a reply. A connection that has
    /// already carried more closes at the next reply. `None` ends the fault. Each closed connection counts as a lost reply.
    pub fn tear(&self, after: Option<usize>) {
        self.shared.faults.torn_after.store(after.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Ends all faults.
    pub async fn heal(&self) {
        self.shared.faults.forget();
        self.tear(None);
        self.hush(false);
        self.resume();
        self.delay(Direction::Both, Duration::ZERO);
        self.split(Direction::Both, None);
        self.accept().await;
    }

    /// Returns the number of requests for each command. The names are in upper case.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.shared.counters.requests()
    }

    /// Returns the most words of a request. [`reset_counts`](Self::reset_counts) does not change this.
    pub fn longest(&self) -> usize {
        self.shared.counters.longest()
    }

    /// Returns the number of reads from clients. Requests that a client writes together mostly count as one.
    pub fn batches(&self) -> u64 {
        self.shared.counters.batches()
    }

    /// Sets the counts of requests and batches to zero.
    pub fn reset_counts(&self) {
        self.shared.counters.reset();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.get_mut().take() {
            task.abort();
        }
        self.cut();
    }
}
