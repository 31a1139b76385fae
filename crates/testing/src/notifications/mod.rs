//! The stream of notifications, and what a test does to it.

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

/// The most times that a notification is repeated.
const MAX_DUPLICATES: usize = 8192;

/// What happens to notifications between a server and its listeners: nothing, at
/// first. Clones are one and the same.
///
/// Notifications are wake-ups (a new timer is the next to be due), fences (a
/// running attempt was cancelled), expired keys and, of attached topics, changed ones. Faults add up until
/// [`heal`](Self::heal), and hit every listener alike, where the server hands messages to connections:
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
    line: Arc<FaultyCarrier>,
    to: NotificationSource,
}

/// Who sends them.
#[derive(Clone, Debug)]
enum NotificationSource {
    /// The server in this process.
    InProcess(keylapse_testserver::TestServer),
    /// Another.
    Remote(Arc<Relays>),
}

/// Connections to another server.
#[derive(Debug)]
struct Relays {
    line: Arc<FaultyCarrier>,
    db: i64,
    /// Those that have not ended, and how many there ever were.
    open: Mutex<(u64, Vec<RelayedConnection>)>,
}

impl Relays {
    fn relay(&self, far: impl AsyncRead + AsyncWrite + Send + 'static) -> DuplexStream {
        let mut open = lock(&self.open);
        let (count, all) = &mut *open;
        *count += 1;
        let (near, relayed) = relay(far, *count, self.line.clone());
        all.retain(|relayed| !relayed.is_closed());
        all.push(relayed);
        near
    }

    fn each(&self, act: impl FnMut(&RelayedConnection)) {
        lock(&self.open).1.iter().for_each(act);
    }
}

impl Notifications {
    /// The same client, with notifications that can be broken between the server and the listeners that use
    /// it: of any single server, in real time. A [`TestBed`](super::TestBed) has its own.
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
    /// If the client speaks TLS, has [streams](Client::streams) of its own, or leads to a cluster or to sentinels.
    #[track_caller]
    pub fn of(client: Client) -> (Client, Self) {
        let store = client.store().clone();
        let target = store.target();
        let is_plain = target.options.tls.is_none() && target.options.streams.is_none();
        let (Endpoints::One(endpoint), true) = (&target.endpoints, is_plain) else {
            panic!(
                "notifications can be broken between a client and one server, over TCP or a Unix socket, without TLS"
            )
        };
        let (endpoint, line) = (endpoint.clone(), Arc::<FaultyCarrier>::default());
        let relays = Relays { line: line.clone(), db: target.options.db, open: Mutex::default() };
        let relays = Arc::new(relays);
        let notifications = Self { line, to: NotificationSource::Remote(relays.clone()) };
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

    /// Those of this server.
    pub(super) fn new(server: keylapse_testserver::TestServer, pulse: Arc<ActivitySignal>) -> Self {
        let line = Arc::new(FaultyCarrier::new(pulse));
        server.carry_by(line.clone());
        Self { line, to: NotificationSource::InProcess(server) }
    }

    /// From now on every notification is lost, and nobody notices: canaries are
    /// heard. What was armed meanwhile is found by a sweep, within 5 s.
    pub fn lose(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::CanariesOnly)
    }

    /// The next `count` notifications are lost, to each listener.
    pub fn lose_next(&self, count: usize) -> &Self {
        self.change(|faults| faults.lose_next(count))
    }

    /// Nothing is heard, canaries neither, as with cleared flags: listeners notice
    /// within 1.5 s, and sweep every second. After some seconds they subscribe once more, in vain.
    pub fn silence(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Silent)
    }

    /// The subscription is gone, and listeners know it at once. The server ends each connection that subscribes, and no
    /// other.
    pub fn disconnect(&self) -> &Self {
        self.change(|faults| faults.flow = Flow::Disconnected);
        match &self.to {
            NotificationSource::InProcess(server) => server.disconnect_subscribers(),
            NotificationSource::Remote(relays) => relays.each(RelayedConnection::disconnect_subscriber),
        }
        self
    }

    /// Notifications arrive this much later. Canaries overtake them, so that nobody notices; but to a listener of
    /// attached topics, which relies on the order, whatever follows comes behind them.
    pub fn delay(&self, by: Duration) -> &Self {
        self.change(|faults| faults.delay = by.min(MAX_DELAY))
    }

    /// Notifications arrive this many more times, at most 8,192.
    pub fn duplicate(&self, more: usize) -> &Self {
        self.change(|faults| faults.duplicates = more.min(MAX_DUPLICATES))
    }

    /// Notifications are gathered for this long, then arrive in reverse order.
    pub fn reorder(&self, window: Duration) -> &Self {
        self.change(|faults| faults.window = window.min(MAX_DELAY))
    }

    /// No more faults. Listeners hear a canary within about a second, or subscribe again within five; what was lost stays
    /// lost, and what was put off is still on its way.
    pub fn heal(&self) -> &Self {
        self.change(Faults::heal)
    }

    /// Announces this key as expired, whether it is or not: anybody can PUBLISH.
    /// Faults do not apply.
    pub fn forge(&self, key: impl AsRef<[u8]>) -> &Self {
        match &self.to {
            NotificationSource::InProcess(server) => _ = server.push("__keyevent@0__:expired", key),
            NotificationSource::Remote(relays) => {
                let channel = format!("__keyevent@{}__:expired", relays.db);
                relays.each(|relayed| relayed.push(&channel, &key));
            }
        }
        self.line.record_activity();
        self
    }

    /// How many notifications were delivered, over all listeners; duplicates count.
    pub fn delivered(&self) -> u64 {
        self.line.delivered.load(Ordering::Relaxed)
    }

    /// How many were lost, over all listeners.
    pub fn lost(&self) -> u64 {
        self.line.lost.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) -> &Self {
        self.line.change(change);
        self
    }
}
