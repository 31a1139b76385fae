//! Tests of a session on a test bed, without a listener.

use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt;
use tokio::task::unconstrained;

use super::*;
use crate::events::{Decoder, KeyReadKind, SubscriptionSource};
use crate::rig::Rig;
use crate::wire::PartitionNames;

/// A supervisor on this test bed, to which this number of partitions and no heartbeats are assigned.
fn supervisor(bed: &Rig, partitions: u32, attached: &[String]) -> (Supervisor, mpsc::Receiver<Event>) {
    let (events, passed) = mpsc::channel(10);
    let server = bed.client().store.topology().only().expect("one server").clone();
    let names: Vec<_> =
        (0..partitions).map(|one| PartitionNames::new("keylapse", "topic", one, partitions, false)).collect();
    let decoder = Decoder::new("keylapse", 0, &names, attached, false);
    let partitions = (0..names.len()).collect();
    let (_sender, assignment) = watch::channel(NodeAssignment { partitions, canaries: None });
    let (prompts, rounds) = (Arc::default(), PollTimer::default());
    let source = SubscriptionSource {
        server,
        deployment: Deployment::Alone,
        slots_move: false,
        decoder,
        assignment,
        prompts,
        rounds,
    };
    (Supervisor::new(source, events), passed)
}

/// A wake-up that was published before the subscription reaches no listener.
#[tokio::test(start_paused = true)]
async fn a_subscription_to_wake_ups_is_followed_by_a_sweep() {
    for partitions in [0, 1] {
        let bed = Rig::new();
        let (supervisor, mut passed) = supervisor(&bed, partitions, &[]);
        let session = Session::open(&supervisor).await.expect("a subscription");
        let (_requests, mut key_reads) = mpsc::channel(1);
        let ran = tokio::time::timeout(Duration::from_millis(1), session.run(&mut key_reads)).await;
        assert!(ran.is_err(), "it stays subscribed");
        assert_eq!(passed.try_recv() == Ok(Event::Joined), partitions > 0);
    }
}

/// Otherwise the session would retry without a pause, and block the listener's thread.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_no_slots_any_more_is_asked_for_no_canary_now_or_later() {
    let bed = Rig::new();
    let (supervisor, _passed) = supervisor(&bed, 0, &["a:".into()]);
    let mut session = Session::open(&supervisor).await.expect("a subscription");
    session.assignment.canaries = Some("keylapse:{heartbeat/0}".into());
    session.request_canary(true);
    session.assignment.canaries = None;
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(1)).await;
        session.request_canary(true);
        assert!(session.next_canary_at > Instant::now());
    }
}

#[tokio::test(start_paused = true)]
async fn an_overflow_is_reported_at_once_and_the_next_after_a_second() {
    let bed = Rig::new();
    let (supervisor, mut passed) = supervisor(&bed, 0, &[]);
    let mut session = Session::open(&supervisor).await.expect("a subscription");
    for (after, dropped, reported) in
        [(0, 0, false), (0, 3, true), (999, 2, false), (1, 0, true), (0, 1, false)]
    {
        tokio::time::advance(Duration::from_millis(after)).await;
        session.unreported_drops += dropped;
        session.report_dropped().await;
        let overflow = passed.try_recv() == Ok(Event::Gap(Gap::Overflow));
        assert_eq!(overflow, reported, "{dropped} more, {after} ms later");
    }
}

/// Without a limit, all key reads would be sent to a server that answers none.
#[tokio::test(start_paused = true)]
async fn a_thousand_touches_are_on_their_way_and_others_wait_until_one_is_answered() {
    let bed = Rig::new();
    let (supervisor, mut passed) = supervisor(&bed, 0, &["a:".into()]);
    for is_subscribed in [true, false] {
        let (asking, mut asked) = mpsc::channel(2 * MAX_KEY_READS);
        let read = KeyRead { id: 1, keys: vec!["a:1".into()], kind: KeyReadKind::Deadlines };
        while asking.try_send(read.clone()).is_ok() {}
        let running = async {
            if is_subscribed {
                let session = Session::open(&supervisor).await.expect("a subscription");
                _ = unconstrained(session.run(&mut asked)).await;
            } else {
                let never = std::future::pending::<()>();
                unconstrained(supervisor.without_subscription(&mut asked, never)).await;
            }
        };
        let mut running = pin!(running);
        while asking.capacity() == 0 {
            assert!((&mut running).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert_eq!(asking.capacity(), MAX_KEY_READS, "the limit is reached, and none is answered");
        let mut answered = 0;
        while answered < 2 * MAX_KEY_READS {
            tokio::select! {
                () = &mut running => panic!("it has ended"),
                Some(event) = passed.recv() => answered += usize::from(matches!(event, Event::KeysRead(_))),
            }
        }
        assert_eq!(asking.capacity(), 2 * MAX_KEY_READS);
    }
}
