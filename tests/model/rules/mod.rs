//! One readable case for each rule, run on each server.

/// Makes a test of each case for each server.
macro_rules! on_each_server {
    ($($case:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&mut crate::model::rig::Rig::in_process(stringify!($case)).await).await;
            })*
        }

        mod real {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&mut crate::model::rig::Rig::real(stringify!($case)).await).await;
            })*
        }
    };
}

mod arming;
mod broken;
mod canaries;
mod cancelling;
mod claiming;
mod destroying;
mod enrolling;
mod events;
mod journal;
mod late_repeats;
mod leases;
mod letters;
mod next;
mod order;
mod partitions;
mod repair;
mod repartitioning;
mod repeats;
mod settling;
mod tail;
mod triggers;
mod undelivered;
mod written_back;
