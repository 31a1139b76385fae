//! A server under test, with a clock that the test moves.

mod attached;
mod backdoor;
mod events;
mod ids;
mod verbs;

use keylapse::inside::ClientInside as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::Client;
use keylapse_support::Server;
use keylapse_wire::Store;
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, cmd};
use tokio::sync::Mutex;

pub(crate) use events::Events;
pub(crate) use ids::Ids;
pub(crate) use verbs::{
    ArmCode, ArmReply, LEASE, LETTERS, Taken, ask, dead, keys, letter_name, ms, retry, snooze, system_time,
    unix_ms,
};

/// What every clock shows of the millisecond that has begun. Not zero, so that
/// deadlines have to be rounded up.
const FRACTION: Duration = Duration::from_micros(250);

/// A server, one partition of it, and the clock that the scripts read there.
pub(crate) struct Rig {
    pub store: Store,
    pub at: PartitionNames,
    pub ids: Ids,
    admin: MultiplexedConnection,
    clock_key: String,
    start: SystemTime,
    elapsed: Duration,
    _server: Option<Arc<Server>>,
}

/// One server for all tests of the process that run at a time. Not a static of
/// its own, as that would never be dropped and the server outlive the tests.
async fn shared_server() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(Server::start().await);
    *shared = Arc::downgrade(&started);
    started
}

impl Rig {
    /// On a real server; tests with different names do not meet.
    pub(crate) async fn real(test: &str) -> Self {
        Self::on_real(shared_server().await, test).await
    }

    /// On a real server that it has to itself.
    pub(crate) async fn alone(test: &str) -> Self {
        Self::on_real(Arc::new(Server::start().await), test).await
    }

    async fn on_real(server: Arc<Server>, test: &str) -> Self {
        let store = Store::at(&server.app_url()).expect("the URL is fine");
        Self::on(store, server.conn().await, test, Some(server)).await
    }

    /// On a server of its own, in this process.
    pub(crate) async fn in_process(test: &str) -> Self {
        let server = keylapse_testserver::TestServer::builder().start(start()).build();
        let (info, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
        let connection = MultiplexedConnection::new_with_config(&info, server.connect(), config).await;
        let (admin, driver) = connection.expect("it accepts connections");
        tokio::spawn(driver);
        let mut console = admin.clone();
        let on =
            cmd("CONFIG").arg("SET").arg("notify-keyspace-events").arg("Ex").exec_async(&mut console).await;
        on.expect("events are switched on");
        let client = Client::new("redis://in.this.process").expect("the URL is fine");
        let client = client.connect_with(move || std::future::ready(Ok(server.connect())));
        Self::on(client.store().clone(), admin, test, None).await
    }

    async fn on(store: Store, admin: MultiplexedConnection, test: &str, server: Option<Arc<Server>>) -> Self {
        // In the partition's slot.
        let clock_key = format!("app:clock:{{{test}/0}}");
        let mut rig = Self {
            store: store.with_clock_key(&clock_key),
            at: PartitionNames::new(DEFAULT_NAMESPACE, test, 0, 1, false),
            ids: Ids::default(),
            admin,
            clock_key,
            start: start(),
            elapsed: Duration::ZERO,
            _server: server,
        };
        rig.reset(rig.start).await;
        rig
    }

    /// Forgets everything and sets the clock back.
    pub(crate) async fn reset(&mut self, start: SystemTime) {
        self.ids = Ids::default();
        self.ask::<()>(cmd("DEL").arg(self.at.all())).await;
        self.set_clock(start).await;
    }

    /// Sets the clock, whatever it showed.
    pub(crate) async fn set_clock(&mut self, to: SystemTime) {
        (self.start, self.elapsed) = (to, Duration::ZERO);
        self.pass(Duration::ZERO).await;
    }

    /// Moves the clock on.
    pub(crate) async fn pass(&mut self, by: Duration) {
        self.elapsed += by;
        self.ask::<()>(cmd("SET").arg(&self.clock_key).arg(self.micros())).await;
    }

    /// Moves the clock on to the real time, which has passed since the test began.
    pub(crate) async fn catch_up(&mut self) {
        let behind = SystemTime::now().duration_since(self.start + self.elapsed).unwrap_or_default();
        self.pass(ms(u64::try_from(behind.as_millis()).expect("less than an age"))).await;
    }

    /// What the clock shows, in microseconds since 1970.
    pub(crate) fn micros(&self) -> u64 {
        let now = self.start + self.elapsed;
        let since = now.duration_since(UNIX_EPOCH).expect("it is after 1970");
        u64::try_from(since.as_micros()).expect("it is before the year 586524")
    }

    /// The millisecond that has begun.
    pub(crate) fn now(&self) -> u64 {
        self.micros() / 1000
    }

    /// The first millisecond that has not begun: what "now" means for a deadline.
    pub(crate) fn ceil(&self) -> u64 {
        self.micros().div_ceil(1000)
    }
}

/// Near the real time, as a server's own expiry of keys goes by that.
fn start() -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    UNIX_EPOCH
        + Duration::from_secs(now.as_secs())
        + Duration::from_millis(now.subsec_millis().into())
        + FRACTION
}
