//! One readable case for each rule, run on both stores.

/// Makes two tests of each case.
macro_rules! on_both_stores {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&mut crate::rig::Rig::memory()).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&mut crate::rig::Rig::redis(stringify!($case)).await).await;
            })*
        }
    };
}

mod arming;
mod broken;
mod cancelling;
mod claiming;
mod hints;
mod late_repeats;
mod leases;
mod letters;
mod next;
mod order;
mod partitions;
mod repair;
mod repeats;
mod settling;
mod triggers;
