//! The test kit.

use std::time::Duration;

use keylapse::{Done, Failure, Lapse, Topic};
use keylapse_testing::{LocalCluster, RunningListener, SentinelGroup, TestBed};

use super::values::{DURATIONS, SIZES, texts, times};
use super::{Case, ends, paused};

pub(super) const CASES: &[Case] = &[
    (&["testing::Notifications::delay"], || {
        DURATIONS.into_iter().for_each(|by| hears(|bed| _ = bed.notifications().delay(by)));
    }),
    (&["testing::Notifications::reorder"], || {
        DURATIONS.into_iter().for_each(|window| hears(|bed| _ = bed.notifications().reorder(window)));
    }),
    (&["testing::Notifications::duplicate"], || {
        SIZES.into_iter().for_each(|more| hears(|bed| _ = bed.notifications().duplicate(more)));
    }),
    (&["testing::Notifications::lose_next"], || {
        SIZES.into_iter().for_each(|count| hears(|bed| _ = bed.notifications().lose_next(count)));
    }),
    (&["testing::Notifications::forge"], || {
        hears(|bed| texts().iter().for_each(|key| _ = bed.notifications().forge(key)));
    }),
    (&["testing::TestBed::command"], || {
        paused(async {
            let bed = TestBed::new();
            for text in texts() {
                bed.command(["SET", &text, &text]);
            }
        });
    }),
    (&["testing::TestBed::advance", "testing::TestBed::until_ran"], || {
        for time in DURATIONS.map(|time| time.min(Duration::from_secs(1))) {
            paused(async {
                let bed = TestBed::new();
                let (topic, listening) = listen(&bed).await;
                bed.advance(time).await;
                let _ = bed.schedule().arm(&topic, "1", Duration::ZERO, &1).await.unwrap();
                bed.until_ran(&topic, "1").await;
                listening.stop().await.unwrap();
            });
        }
        for time in DURATIONS.into_iter().filter(|time| *time > keylapse::limits::MAX_DELAY) {
            let refused = ends(move || paused(async { TestBed::new().advance(time).await })).unwrap_err();
            assert!(refused.contains("more than ten years"), "{refused}");
        }
    }),
    (&["testing::TestBed::starting_at"], || {
        for start in times() {
            paused(async {
                let bed = TestBed::starting_at(start);
                let (topic, listening) = listen(&bed).await;
                // Far from now nothing can be armed.
                let _ = bed.schedule().arm(&topic, "1", Duration::ZERO, &1).await;
                bed.advance(Duration::from_secs(1)).await;
                drop(listening.stop().await);
            });
        }
    }),
    (
        &["testing::LocalClusterBuilder::primaries", "testing::LocalClusterBuilder::replicas_per_primary"],
        || {
            paused(async {
                for builder in [
                    LocalCluster::builder().primaries(0),
                    LocalCluster::builder().primaries(usize::MAX),
                    LocalCluster::builder().replicas_per_primary(usize::MAX),
                    LocalCluster::builder().primaries(usize::MAX).replicas_per_primary(usize::MAX),
                ] {
                    assert!(builder.start().await.unwrap_err().to_string().contains("1 to 1,000"));
                }
            });
        },
    ),
    (&["testing::SentinelGroupBuilder::replicas", "testing::SentinelGroupBuilder::sentinels"], || {
        paused(async {
            for builder in [
                SentinelGroup::builder().sentinels(0),
                SentinelGroup::builder().sentinels(usize::MAX),
                SentinelGroup::builder().replicas(usize::MAX),
            ] {
                assert!(builder.start().await.unwrap_err().to_string().contains("1 to 1,000"));
            }
        });
    }),
];

async fn listen(bed: &TestBed) -> (Topic<u32>, RunningListener) {
    let topic = Topic::<u32>::new("tried:{id}").unwrap();
    let handle = |_: Lapse<u32>| async { Ok::<_, Failure>(Done) };
    let listening = bed.listen(|builder| builder.on(topic.clone(), handle)).await.unwrap();
    (topic, listening)
}

/// Timers run whatever becomes of notifications.
fn hears(break_them: impl Fn(&TestBed)) {
    paused(async {
        let bed = TestBed::new();
        let (topic, listening) = listen(&bed).await;
        break_them(&bed);
        let _ = bed.schedule().arm(&topic, "1", Duration::from_secs(1), &1).await.unwrap();
        bed.until_ran(&topic, "1").await;
        bed.advance(Duration::from_secs(3)).await;
        listening.stop().await.unwrap();
    });
}
