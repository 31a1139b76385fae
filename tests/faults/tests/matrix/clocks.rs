//! C14, as the scripts see it: a real server whose scripts read the time from a key, set to whatever the
//! clock is to do. [`faketime`](crate::faketime) does it to the server's own clock.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use keylapse::{Client, Schedule};
use keylapse_connection::id::{SlotId, Token};
use keylapse_support::Server;
use keylapse_wire::{Claim, Claimed, DeadLetterLimits, Index, LeaseRef, QuarantineGroup, Store, TopicEntry};

use crate::scene::{names, topic};

const CLOCK: &str = "clock";
const LEASE_MS: u64 = 30_000;
const HOUR_MS: u64 = 3_600_000;
/// Some day in 2026.
const NOON_MS: u64 = 1_790_000_000_000;

struct Scene {
    server: Server,
    store: Store,
    schedule: Schedule,
}

impl Scene {
    async fn open() -> Self {
        let server = Server::start().await;
        let store = Store::at(&server.url()).expect("a store").with_clock_key(CLOCK);
        let schedule = Schedule::new(Client::of_store(store.clone()));
        let scene = Self { server, store, schedule };
        scene.set(NOON_MS).await;
        let entry = TopicEntry {
            name: "row".to_owned(),
            pattern: "app:row:{id}".to_owned(),
            partitions: 1,
            marker_keys: false,
            attached: false,
        };
        scene.store.register(&entry, &[names()]).await.expect("a partition");
        scene
    }

    async fn set(&self, ms: u64) {
        self.server.cmd(&["SET", CLOCK, &(ms * 1000).to_string()]).await;
    }

    async fn arm(&self, id: &str, delay_ms: u64) {
        let topic = topic(Duration::from_millis(LEASE_MS)).marker_keys(false);
        let armed = self.schedule.arm(&topic, [id], Duration::from_millis(delay_ms), &0).await;
        assert!(armed.expect("an answer").is_armed());
    }

    async fn claim(&self) -> (Claimed, Token) {
        let token = Token::random();
        let claim = Claim {
            index: Index::Due,
            slot: SlotId::random(),
            token,
            repeat: false,
            limit: 10,
            bytes: 1 << 20,
            lookahead_ms: 0,
            lease_ms: LEASE_MS,
            letters: DeadLetterLimits { count: 100, age_ms: HOUR_MS, pause_when_full: false },
            group: QuarantineGroup::ALONE,
        };
        (self.store.claim(&names(), claim).await.expect("an answer"), token)
    }

    async fn takes(&self) -> usize {
        self.claim().await.0.timers.len()
    }

    /// Claims the only timer.
    async fn hold(&self) -> LeaseRef {
        let (mut claimed, token) = self.claim().await;
        LeaseRef { key: claimed.timers.remove(0).key, token }
    }

    /// Whether it is still held.
    async fn renews(&self, held: &LeaseRef) -> bool {
        let lost = self.store.renew(&names(), LEASE_MS, std::slice::from_ref(held)).await;
        lost.expect("an answer").is_empty()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_nothing_is_given_out_before_its_deadline_wherever_the_clock_goes() {
    let scene = Scene::open().await;
    scene.arm("1", 10_000).await;
    for (now, due) in
        [(NOON_MS + 9_999, 0), (NOON_MS - HOUR_MS, 0), (NOON_MS + 9_999, 0), (NOON_MS + 10_000, 1)]
    {
        scene.set(now).await;
        assert_eq!(scene.takes().await, due, "at {now}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_a_lease_ends_by_the_servers_clock_and_a_renewal_follows_its_steps() {
    let scene = Scene::open().await;
    scene.arm("1", 0).await;
    let held = scene.hold().await;
    // An hour back: without a renewal the lease would last for an hour more.
    scene.set(NOON_MS - HOUR_MS).await;
    assert_eq!(scene.takes().await, 0);
    assert!(scene.renews(&held).await);
    scene.set(NOON_MS - HOUR_MS + LEASE_MS - 1).await;
    assert_eq!(scene.takes().await, 0);
    scene.set(NOON_MS - HOUR_MS + LEASE_MS).await;
    assert_eq!(scene.takes().await, 1, "somebody else's now");
    assert!(!scene.renews(&held).await);
}

/// Two hours ahead, every lease is over; who still holds its timer and says so first keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn c14_a_holder_that_renews_after_a_step_forward_keeps_its_timer() {
    let scene = Scene::open().await;
    scene.arm("1", 0).await;
    let held = scene.hold().await;
    scene.set(NOON_MS + 2 * HOUR_MS).await;
    assert!(scene.renews(&held).await);
    assert_eq!(scene.takes().await, 0);
    scene.set(NOON_MS + 2 * HOUR_MS + LEASE_MS).await;
    assert_eq!(scene.takes().await, 1);
}
