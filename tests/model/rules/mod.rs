//! One readable case for each rule, run on each server.

/// Makes a test of each case for each server; it begins with a rig, or what is named before the cases.
macro_rules! on_each_server {
    ($($case:ident),* $(,)?) => {
        use crate::model::rig::Rig as OnServer;
        on_each_server! { OnServer: $($case),* }
    };
    ($rig:ident: $($case:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&mut super::$rig::in_process(stringify!($case)).await).await;
            })*
        }

        mod real {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&mut super::$rig::real(stringify!($case)).await).await;
            })*
        }
    };
}

mod arming;
pub(crate) mod attached;
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
