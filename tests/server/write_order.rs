//! Scripts are not undone: what a missing right cuts short must be finished by the call's repeat.

use bytes::Bytes;
use keylapse::timers::ArmingId;
use keylapse::{Cancelled, ErrorKind, Result};
use keylapse_connection::id::{CancelId, SlotId, Token};
use keylapse_support::{APP_USER, Server};
use keylapse_wire::names::PartitionNames;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    AttemptEnd, Claim, Claimed, DeadLetterLimits, Index, LeaseRef, NewTimer, OpFlags, QuarantineGroup,
    Settle, SettleReply, Store, TopicEntry,
};
use redis::Value;

use crate::produce::{Cancel, Produce};

const KEY: Bytes = Bytes::from_static(b"app:order:1");
const LETTERS: DeadLetterLimits = DeadLetterLimits { count: 10, age_ms: 86_400_000, pause_when_full: false };

/// The least privileged user, one partition, and a timer in it that is due.
struct Scene {
    server: Server,
    store: Store,
    at: PartitionNames,
    token: Token,
}

impl Scene {
    async fn start() -> Self {
        let server = Server::start().await;
        let store = Store::at(&server.app_url()).unwrap();
        let at = PartitionNames::new("keylapse", "orders", 0, 1, false);
        let (name, pattern) = ("orders".into(), "app:order:{id}".into());
        let entry = TopicEntry { name, pattern, partitions: 1, marker_keys: false, attached: false };
        store.register(&entry, std::slice::from_ref(&at)).await.unwrap();
        let timer = NewTimer {
            key: KEY,
            payload: KEY,
            when: WireWhen::In(0),
            arming: ArmingId::random(),
            trace: None,
            by: None,
        };
        store.arm(&at, OpFlags::default(), &[timer]).await.unwrap();
        Self { server, store, at, token: Token::random() }
    }

    /// Gives the user a right, or takes one away.
    async fn user(&self, change: &str) {
        self.server.cmd(&["ACL", "SETUSER", APP_USER, change]).await;
    }

    async fn claim(&self) -> Result<Claimed> {
        let claim = Claim {
            index: Index::Due,
            slot: SlotId::random(),
            token: self.token,
            repeat: false,
            limit: 10,
            bytes: 10_000,
            lookahead_ms: 1000,
            lease_ms: 60_000,
            letters: LETTERS,
            group: QuarantineGroup::ALONE,
        };
        self.store.claim(&self.at, claim).await
    }

    async fn retry(&self) -> Result<Vec<SettleReply>> {
        let end = AttemptEnd::Retry { delay: 60_000, attempt: 2, snoozes: 0, history: Bytes::new() };
        let settle = Settle { held: LeaseRef { key: KEY, token: self.token }, end };
        self.store.settle(&self.at, LETTERS, false, &[settle]).await.map(|settled| settled.each)
    }
}

/// Claimed states beside old scores would read as lost leases.
#[tokio::test]
async fn a_claim_that_may_not_write_the_lease_holds_nothing() {
    let scene = Scene::start().await;
    scene.user("-zadd").await;
    for _ in 0..5 {
        assert_eq!(scene.claim().await.unwrap_err().kind(), ErrorKind::Permission);
        assert_eq!(scene.server.cmd(&["HLEN", scene.at.key("timer_states")]).await, Value::Int(0));
    }
    scene.user("+zadd").await;
    let claimed = scene.claim().await.unwrap();
    assert_eq!((claimed.timers.len(), claimed.timers[0].state.clone()), (1, None), "a first attempt");
}

/// Or the retry would come at the end of the lease instead.
#[tokio::test]
async fn a_retry_that_may_not_leave_the_index_is_finished_by_its_repeat() {
    let scene = Scene::start().await;
    assert_eq!(scene.claim().await.unwrap().timers.len(), 1);
    scene.user("-zrem").await;
    assert_eq!(scene.retry().await.unwrap_err().kind(), ErrorKind::Permission);
    scene.user("+zrem").await;
    let SettleReply::Settled(Some((deadline, _))) = scene.retry().await.unwrap()[0] else {
        panic!("the first call has let go of what it could not end")
    };
    let score = scene.server.cmd(&["ZSCORE", scene.at.key("due"), "app:order:1"]).await;
    assert_eq!(redis::from_redis_value::<u64>(score).unwrap(), deadline);
}

#[tokio::test]
async fn a_cancel_that_may_not_tell_the_holder_is_a_cancel() {
    let scene = Scene::start().await;
    assert_eq!(scene.claim().await.unwrap().timers.len(), 1);
    // Publishing is allowed by a selector of its own.
    scene.user("clearselectors").await;
    let cancel = Cancel { key: KEY, id: CancelId::random() };
    let replies = scene.store.cancel(&scene.at, &[cancel]).await.unwrap();
    assert_eq!(replies[0].result, Cancelled::InFlight);
    assert!(matches!(scene.retry().await.unwrap()[0], SettleReply::Gone), "it is fenced all the same");
}
