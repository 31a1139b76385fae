//! A store under test, with a clock that the test moves.

mod hands;
mod hearing;
mod ids;
mod verbs;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::store::keys::{DEFAULT_NAMESPACE, Partition};
use keylapse::store::{Clock, MemoryStore, RedisStore, Store};

use hands::Hands;
pub(crate) use hearing::Hearing;
pub(crate) use ids::Ids;
pub(crate) use verbs::{LEASE, LETTERS, Taken, dead, ms, retry, snooze};

/// What every clock shows of the millisecond that has begun. Not zero, so that
/// deadlines have to be rounded up.
const FRACTION: Duration = Duration::from_micros(250);

/// A store, one partition of it, and its clock.
pub(crate) struct Rig {
    pub store: Arc<dyn Store>,
    pub at: Partition,
    pub ids: Ids,
    hands: Hands,
    start: SystemTime,
    elapsed: Duration,
}

impl Rig {
    /// In memory.
    pub(crate) fn memory() -> Self {
        let start = start();
        let clock = Clock::manual(start);
        let store = MemoryStore::with_clock(clock.clone());
        Self::new(store.clone(), "memory", start, Hands::Memory { store, clock })
    }

    /// On a real server; tests with different names do not meet.
    pub(crate) async fn redis(test: &str) -> Self {
        let server = hands::shared_server().await;
        let admin = server.conn().await;
        let clock_key = format!("clock:{test}");
        let store = RedisStore::with_clock_key(&server.url(), &clock_key).expect("the URL is fine");
        let start = start();
        let mut rig = Self::new(store, test, start, Hands::Redis { _server: server, admin, clock_key });
        rig.reset(start).await;
        rig
    }

    fn new(store: impl Store, topic: &str, start: SystemTime, hands: Hands) -> Self {
        Self {
            store: Arc::new(store),
            at: Partition::new(DEFAULT_NAMESPACE, topic, 0, 1),
            ids: Ids::default(),
            hands,
            start,
            elapsed: Duration::ZERO,
        }
    }

    /// Forgets everything and sets the clock back.
    pub(crate) async fn reset(&mut self, start: SystemTime) {
        self.start = start;
        self.elapsed = Duration::ZERO;
        self.ids = Ids::default();
        match &mut self.hands {
            Hands::Memory { store, clock } => {
                *clock = Clock::manual(start);
                *store = MemoryStore::with_clock(clock.clone());
                self.store = Arc::new(store.clone());
            }
            Hands::Redis { .. } => {
                self.hands.forget(&self.at).await;
                self.hands.set_clock(self.micros()).await;
            }
        }
    }

    /// Moves the clock on.
    pub(crate) async fn pass(&mut self, by: Duration) {
        self.elapsed += by;
        match &self.hands {
            Hands::Memory { clock, .. } => clock.advance(by),
            Hands::Redis { .. } => self.hands.set_clock(self.micros()).await,
        }
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
