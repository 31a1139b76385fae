//! A TCP proxy between clients and a server that breaks the line on command.
//!
//! It follows the protocol, so that it can lose the answer to one particular request *after* the
//! server has executed it: the fault that tells whether a client may repeat what it asked. To see
//! it, read from [`frame`] (bytes) over [`dialogue`] (which reply is whose) and [`faults`] (what shall
//! go wrong) to [`connection`] (how it does).

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

/// How long [`Proxy::until_lost`] waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy on a port of its own. It and its connections end with this value.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    reach: Reach,
    shared: Arc<Shared>,
    /// The task that owns the listening socket; none while connections are refused.
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// Where those proxies listen that have their servers' ports. Linux has all of 127.0.0.0/8 on loopback.
    pub const BESIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    /// Starts a proxy before this server, which clients reach as they reach the server. It follows the server
    /// through restarts.
    pub async fn before(server: &Server) -> Self {
        let reach = server.reach();
        let listener = match reach.is_cluster() {
            // Nodes say where they listen: at the same port, of the host by which they are asked.
            true => Listener::beside(server.door().port()).await,
            false => Listener::on_any_port().await,
        };
        Self::serving(listener, server.behind(), reach.clone())
    }

    /// Starts a proxy before whatever listens on this port of 127.0.0.1.
    pub async fn before_port(upstream: u16) -> Self {
        let upstream = (Ipv4Addr::LOCALHOST, upstream).into();
        Self::serving(Listener::on_any_port().await, upstream, Reach::default())
    }

    /// Starts a proxy on 127.0.0.2, before whatever listens on the same port of 127.0.0.1. Nodes of a
    /// cluster that announce this host, and no other port, have their clients come through such proxies,
    /// and talk to each other without.
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

    /// The port, the same also after [`refuse`](Self::refuse).
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the `default` user connects.
    pub fn url(&self) -> String {
        self.reach.url(None, self.address)
    }

    /// Where this user connects. Name and password are put into the URL as they are.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.reach.url(Some((user, password)), self.address)
    }

    /// Where the user of `redis.conf` with the least rights connects.
    pub fn app_url(&self) -> String {
        self.url_for(APP_USER, APP_PASSWORD)
    }

    /// Loses the reply to the next request that matches: the server executes it, the client does
    /// not hear. A predicate sees the words of a request; [`command`] makes one from a name.
    pub fn lose_reply(&self, matches: impl Fn(&[Bytes]) -> bool + Send + 'static, then: Then) {
        self.lose_replies(1, matches, then);
    }

    /// Loses the replies to the next `count` requests that match, on whichever connection. A request
    /// that matches several rules uses up the oldest.
    pub fn lose_replies(
        &self,
        count: usize,
        matches: impl Fn(&[Bytes]) -> bool + Send + 'static,
        then: Then,
    ) {
        self.shared.faults.lose(count, Box::new(matches), then);
    }

    /// Does not let through what matches, as proxies do that know some commands alone, until [`heal`](Self::heal).
    pub fn deny(&self, matches: impl Fn(&[Bytes]) -> bool + Send + 'static, denial: Denial) {
        self.shared.faults.deny(Box::new(matches), denial);
    }

    /// How many replies have been lost so far.
    pub fn lost(&self) -> usize {
        *self.shared.faults.lost.borrow()
    }

    /// Waits until that many have been lost in all.
    ///
    /// # Panics
    ///
    /// If this takes more than half a minute.
    #[track_caller]
    pub fn until_lost(&self, count: usize) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let mut lost = self.shared.faults.lost.subscribe();
            let in_time = timeout(PATIENCE, lost.wait_for(|lost| *lost >= count)).await.is_ok();
            assert!(
                in_time,
                "waited {PATIENCE:?} for {count} lost replies, but only {} were, of {:?}, at {caller}",
                self.lost(),
                self.requests(),
            );
        }
    }

    /// Refuses new connections from now on, as a port does on which nothing listens. Open ones stay.
    pub async fn refuse(&self) {
        if let Some(task) = self.accepting.lock().await.take() {
            task.abort();
            // The socket is closed when the task has ended, not when it is told to.
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

    /// Closes all connections there are now.
    pub fn cut(&self) {
        self.shared.faults.cuts.send_replace(Cut::Close);
    }

    /// Resets all connections there are now (RST): what is under way is thrown away.
    pub fn reset(&self) {
        self.shared.faults.cuts.send_replace(Cut::Reset);
    }

    /// Holds back everything that goes this way, on open and new connections, until
    /// [`resume`](Self::resume): a line that is dead without a sign.
    pub fn stall(&self, direction: Direction) {
        self.shared.faults.change(direction, |weather| weather.is_stalled = true);
    }

    /// Delivers what was held back, and goes on.
    pub fn resume(&self) {
        self.shared.faults.change(Direction::Both, |weather| weather.is_stalled = false);
    }

    /// Delivers everything that goes this way later by so much; zero ends it.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.shared.faults.change(direction, |weather| weather.delay = delay);
    }

    /// Writes whatever goes this way in pieces of so many bytes; none ends it.
    pub fn split(&self, direction: Direction, bytes: Option<NonZeroUsize>) {
        self.shared.faults.change(direction, |weather| weather.chunk = bytes);
    }

    /// Has connections that begin from now on carry answers alone, and nothing that the server announces: subscriptions
    /// are confirmed and deliver nothing. Those that are open stay as they are.
    pub fn hush(&self, hushed: bool) {
        self.shared.faults.hushed.store(hushed, Ordering::Relaxed);
    }

    /// Closes each connection behind so many bytes of all that the server says on it, in the middle of whatever that is;
    /// those that have carried more, at the next reply. None ends it. Each one that is closed is a lost reply.
    pub fn tear(&self, after: Option<usize>) {
        self.shared.faults.torn_after.store(after.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Ends all faults: nothing more is lost, torn, denied, stalled, delayed, split or refused.
    pub async fn heal(&self) {
        self.shared.faults.forget();
        self.tear(None);
        self.hush(false);
        self.resume();
        self.delay(Direction::Both, Duration::ZERO);
        self.split(Direction::Both, None);
        self.accept().await;
    }

    /// How many requests went to the server, by the command's name in capitals.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.shared.counters.requests()
    }

    /// How many words the longest request of all had, whatever was reset since.
    pub fn longest(&self) -> usize {
        self.shared.counters.longest()
    }

    /// How many times bytes arrived from clients: several requests that a client wrote at once
    /// mostly count as one.
    pub fn batches(&self) -> u64 {
        self.shared.counters.batches()
    }

    /// Starts counting requests and batches from zero again.
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
