//! A test kit for handlers of [keylapse](https://crates.io/crates/keylapse).
//!
//! Add it to `Cargo.toml` as a dev-dependency:
//!
//! ```toml
//! [dev-dependencies]
//! keylapse-testing = "0.1"
//! ```
//!
//! A [`TestBed`] runs a server in the test's process, in virtual time. Your handlers run under the real listener. In
//! this example the notification is lost, and the handler still runs once and on time:
//!
//! ```
//! use std::time::Duration;
//! use keylapse_testing::TestBed;
//! use keylapse::{Done, Failure, Lapse, Topic};
//!
//! async fn close(order: Lapse<u64>) -> Result<Done, Failure> {
//!     println!("order {:?} is closed: {} cents were not paid", order.capture("id"), order.payload());
//!     Ok(Done)
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // #[tokio::test(start_paused = true)]
//! async fn main() -> keylapse::Result<()> {
//!     let orders = Topic::<u64>::new("order:unpaid:{id}")?;
//!     let bed = TestBed::new();
//!     bed.listen(|listener| listener.on(orders.clone(), close)).await?;
//!     bed.notifications().lose();
//!
//!     bed.schedule().arm(&orders, "42", Duration::from_secs(30), &1999).await?;
//!     bed.advance(Duration::from_secs(30)).await;
//!     assert_eq!(bed.notifications().delivered(), 0);
//!     assert_eq!(bed.runs(&orders).len(), 1);
//!     Ok(())
//! }
//! ```
//!
//! - [`Notifications`] can be lost, delayed, duplicated, reordered, silenced and forged.
//! - A [`HandlerRun`] records each attempt: when it started, how late, how the listener found the timer, how it ended.
//! - A [`RunningListener`] can shut down as in a deployment, or crash.
//! - [`TestBed::command`] writes keys of attached topics, as another program would.
//! - A [`LocalServer`] is a real server that ends with the test. [`LocalCluster`] and [`SentinelGroup`] start several.
//!
//! The guide is `docs/testing.md` in the repository.

#![forbid(unsafe_code)]

mod activity;
mod bed;
mod notifications;
mod run_log;
mod running_listener;
mod servers;
mod waits;

pub use bed::TestBed;
pub use keylapse_testserver::RedisReply;
pub use notifications::Notifications;
pub use run_log::{HandlerRun, RunEnd};
pub use running_listener::RunningListener;
pub use servers::{
    LocalCluster, LocalClusterBuilder, LocalNode, LocalServer, SentinelGroup, SentinelGroupBuilder, SlotMove,
};
