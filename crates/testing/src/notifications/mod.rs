//! The notifications between a server and its listeners, and the faults that a test causes in them.

mod faults;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylapse_testserver::{RelayedConnection, relay};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpStream, UnixStream};

use crate::activity::ActivitySignal;
use crate::notifications::faults::{Faults, FaultyCarrier, Flow};
use keylapse::Client;
use keylapse::inside::ClientInside;
use keylapse::limits::MAX_DELAY;
use keylapse_connection::lock::lock;
use keylapse_connection::{Endpoint, Endpoints};

const MAX_DUPLICATES: usize = 8192;

/// Breaks and counts the notifications between a server and its listeners. At first there is no fault. Clones share
/// the faults and the counts.
///
/// Notifications are wake-ups (a new timer is due next), fences (a running attempt was cancelled), expired keys, and
/// changed keys of attached topics. Faults apply where the server sends messages to connections, so they
/// affect all listeners. They add up until [`heal`](Self::heal):
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// # use std::time::Duration;
/// # let bed = keylapse_testing::TestBed::new();
/// bed.notifications().delay(Duration::from_secs(2)).duplicate(3); // late, and four of each
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Notifications {
    carrier: Arc<FaultyCarrier>,
    source: NotificationSource,
}

/// The server that sends the notifications.
#[derive(Clone, Debug)]
enum NotificationSource {
    InProcess(keylapse_testserver::TestServer),
    Remote(Arc<Relays>),
}

/// The relayed connections to a server outside this process.
#[derive(Debug)]
struct Relays {
    carrier: Arc<FaultyCarrier>,
    db: i64,
    /// The number of connections so far, and those that are open.
    open: Mutex<(u64, Vec<RelayedConnection>)>,
}

impl Relays {
    fn relay(&self, far: impl AsyncRead + AsyncWrite + Send + 'static) -> DuplexStream {
        let mut open = lock(&self.open);
        let (count, all) = &mut *open;
        *count += 1;
        let (near, relayed) = relay(far, *count, self.carrier.clone());
        all.retain(|relayed| !relayed.is_closed());
        all.push(relayed);
        near
    }

    fn each(&self, act: impl FnMut(&RelayedConnection)) {
        lock(&self.open).1.iter().for_each(act);
    }
}

impl Notifications {
    /// Returns a client of the same server, and the notifications of the listeners that use it. The server may be any
    /// single server, in real time. A [`TestBed`](super::TestBed) has its own notifications.
    ///
    /// ```no_run
    /// use keylapse_testing::Notifications;
    /// use keylapse::{Client, Listener};
    ///
    /// # fn example() -> keylapse::Result<()> {
    /// let (client, notifications) = Notifications::of(Client::new("redis://127.0.0.1/")?);
    /// let builder = Listener::builder(client);
    /// notifications.lose();
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// Panics if the client uses TLS or [`connect_with`](Client::connect_with), or connects to a cluster or to sentinels.
    #[track_caller]
    pub fn of(client: Client) -> (Client, Self) {
        let store = client.store().clone();
        let target = store.target();
        let is_plain = target.options.tls.is_none() && target.options.streams.is_none();
        let (Endpoints::One(endpoint), true) = (&target.endpoints, is_plain) else {
            panic!(
                "Notifications::of needs a client of one server, over TCP or a Unix socket, without TLS or connect_with"
            )
        };
        let (endpoint, carrier) = (endpoint.clone(), Arc::<FaultyCarrier>::default());
        let relays = Relays { carrier: carrier.clone(), db: target.options.db, open: Mutex::default() };
        let relays = Arc::new(relays);
        let notifications = Self { carrier, source: NotificationSource::Remote(relays.clone()) };
        let open = move || {
            let (endpoint, relays) = (endpoint.clone(), relays.clone());
            async move {
                Ok(match endpoint {
                    Endpoint::Tcp { host, port } => relays.relay(TcpStream::connect((host, port)).await?),
                    Endpoint::Unix(path) => relays.relay(UnixStream::connect(path).await?),
                })
            }
        };
        (client.connect_with(open), notifications)
    }

    pub(super) fn new(server: keylapse_testserver::TestServer, activity: Arc<ActivitySignal>) -> Self {
        let carrier = Arc::new(FaultyCarrier::new(activity));
        server.carry_by(carrier.clone());
        Self { carrier, source: NotificationSource::InProcess(server) }
    }

    /// Loses every notification from now on. Listeners do not detect it, because heartbeats still arrive. A sweep finds
    /// the timers that are armed without a wake-up, within 5 s.
    pub fn lose(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::CanariesOnly)
    }

    /// Loses the next `count` notifications of each listener.
    pub fn lose_next(&self, count: usize) -> &Self {
        self.change(|faults| faults.lose_next(count))
    }

    /// Loses all messages, heartbeats too, as when `notify-keyspace-events` is cleared. Listeners detect it within 1.5 s,
    /// and then sweep every second. After some seconds they subscribe again, without effect.
    pub fn silence(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Silent)
    }

    /// Closes all connections with subscriptions, now and whenever one subscribes. Other connections stay open. Listeners
    /// detect it immediately.
    pub fn disconnect(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Disconnected);
        match &self.source {
            NotificationSource::InProcess(server) => server.disconnect_subscribers(),
            NotificationSource::Remote(relays) => relays.each(RelayedConnection::disconnect_subscriber),
        }
        self
    }

    /// Delays each notification by `by`, at most 100 years. Heartbeats are not delayed, so listeners do not detect it. A
    /// listener of attached topics relies on the order: its heartbeats and replies wait behind the notifications.
    pub fn delay(&self, by: Duration) -> &Self {
        self.change(|faults| faults.delay = by.min(MAX_DELAY))
    }

    /// Delivers each notification `more` extra times, at most 8,192.
    pub fn duplicate(&self, more: usize) -> &Self {
        self.change(|faults| faults.duplicates = more.min(MAX_DUPLICATES))
    }

    /// Gathers notifications for `window`, at most 100 years, and then delivers them in reverse order.
    pub fn reorder(&self, window: Duration) -> &Self {
        self.change(|faults| faults.window = window.min(MAX_DELAY))
    }

    /// Ends all faults. Listeners receive a heartbeat within about 1 s, or subscribe again within 5 s. Lost notifications
    /// stay lost, and delayed ones still arrive later.
    pub fn heal(&self) -> &Self {
        self.change(Faults::heal)
    }

    /// Publishes that this key has expired, even if it has not, as any client with the right to PUBLISH can. Faults do
    /// not apply.
    pub fn forge(&self, key: impl AsRef<[u8]>) -> &Self {
        match &self.source {
            NotificationSource::InProcess(server) => _ = server.push("__keyevent@0__:expired", key),
            NotificationSource::Remote(relays) => {
                let channel = format!("__keyevent@{}__:expired", relays.db);
                relays.each(|relayed| relayed.push(&channel, &key));
            }
        }
        self.carrier.record_activity();
        self
    }

    /// Returns the number of notifications that were delivered to all listeners. Duplicates count.
    pub fn delivered(&self) -> u64 {
        self.carrier.delivered.load(Ordering::Relaxed)
    }

    /// Returns the number of notifications that were lost to all listeners.
    pub fn lost(&self) -> u64 {
        self.carrier.lost.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) -> &Self {
        self.carrier.change(change);
        self
    }
}
