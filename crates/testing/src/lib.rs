//! A kit for tests of the handlers of [keylapse](https://crates.io/crates/keylapse).
//!
//! In `Cargo.toml`, so that it is no part of your program:
//!
//! ```toml
//! [dev-dependencies]
//! keylapse-testing = "0.1"
//! ```
//!
//! A [`TestBed`] runs a server in the test's own process, under a clock that the test moves. The
//! listener that runs your handlers is the real one. Here the notification is lost,
//! and the handler runs all the same, once, and in time:
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
//!     bed.pass(Duration::from_secs(30)).await; // thirty seconds pass,
//!     assert_eq!(bed.notifications().heard(), 0); // nobody heard the event,
//!     assert_eq!(bed.runs(&orders).len(), 1); // my handler ran once
//!     Ok(())
//! }
//! ```
//!
//! - [`Notifications`] can be lost, late, doubled, out of order, silent or forged;
//! - each [`Run`] of a handler is written down: when, why, how late, how it ended;
//! - a [`Listening`] can be stopped as by a deployment, or crash;
//! - keys of attached topics are written by [`TestBed::command`], as another program would;
//! - a [`Server`] is a real one to throw away, a [`Cluster`] and a [`SentinelGroup`] are several, for what a
//!   bed cannot tell.
//!
//! The repository's `docs/testing.md` is a guide to all of this.

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
