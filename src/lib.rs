//! Dependable timers on Redis and Valkey key expiry.
//!
//! Programs use TTLs as timers. The key of an unpaid order expires, and the order must be closed. A payment notice is
//! sent after 15 s, 3 min and 6 h, until the merchant answers. Redis announces an expired key late and once, without its
//! value, and only to clients that are connected.
//!
//! keylapse keeps each deadline in a sorted set. A listener claims due timers with an atomic script, so only one listener
//! runs a timer at a time. Expiry notifications are hints: a timer runs even if its notification was lost. No timer runs
//! early.
//!
//! Three types are enough for most programs:
//!
//! - A [`Topic`] describes a kind of timer: the pattern of its keys, the type of its payload and its retry policy.
//! - A [`Schedule`] arms, cancels and looks up timers.
//! - A [`Listener`] runs an async function for each [`Lapse`], which is one occurrence of a due timer.
//!
//! The repository has a guide in `docs/`: `docs/first-steps.md` takes ten minutes, and `docs/glossary.md` defines each
//! term.
//!
//! ```no_run
//! use std::time::Duration;
//! use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Notice { url: String, amount: u64 }
//!
//! async fn notify(lapse: Lapse<Notice>) -> std::io::Result<Done> {
//!     let Notice { url, amount } = lapse.payload();
//!     println!("attempt {}: notifying {url} of {amount}", lapse.attempt());
//!     Ok(Done)
//! }
//!
//! # async fn run() -> keylapse::Result<()> {
//! let notices = Topic::<Notice>::new("app:trans:notice:{id}")?
//!     .retry(Backoff::payment_notice())
//!     .timeout(Duration::from_secs(20));
//!
//! // a producer, in this program or another
//! let schedule = Schedule::connect("redis://127.0.0.1/").await?;
//! let notice = Notice { url: "https://merchant.example".into(), amount: 1999 };
//! schedule.arm(&notices, "1615283234", Duration::from_secs(15), &notice).await?;
//!
//! // a listener
//! Listener::builder("redis://127.0.0.1/")
//!     .on(notices, notify)
//!     .build()?
//!     .run_until(shutdown_signal())
//!     .await
//! # }
//! ```
//!
//! Types that most programs need are at the root. The others are in modules by subject, such as [`timers`],
//! [`dead_letters`], [`attach`], [`health`] and [`stats`].
//!
//! # Delivery
//!
//! Delivery is at least once. Each lapse has an [id](Lapse::id), which all its attempts share, even after a crash or a
//! replay. Pass it to other services as an idempotency key. If a listener dies, its timers run again when their leases end
//! (default 30 s), about one second later at most.
//!
//! # Tests
//!
//! The crate `keylapse-testing` runs your handlers in the real listener and in virtual time. Tests can drop notifications.
//!
//! # Logs
//!
//! keylapse logs events and spans of [`tracing`] with the fields `topic`, `key` (escaped, at most 128 bytes), `attempt`,
//! `source`, `lateness_us` and `error`. It never logs payloads and passwords. It does log the errors that handlers return.

#![forbid(unsafe_code)]
// Each type that a program can receive must have a public name.
#![warn(unnameable_types)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attached;
mod backlog;
mod backoff;
mod client;
#[allow(unreachable_pub, reason = "`inside` re-exports them")]
mod events;
pub mod handler;
#[doc(hidden)]
pub mod inside;
mod lapse;
mod lease;
mod listener;
mod outcome;
mod payload;
#[cfg(test)]
mod rig;
mod roles;
mod rounds;
mod runtime;
mod schedule;
mod servers;
pub mod stats;
mod topic;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod tower;

use keylapse_connection::{self as connection, boottime, error, id, lock, log, panics};
#[doc(inline)]
pub use keylapse_pattern as pattern;
use keylapse_pattern::escape;
use keylapse_wire::{self as wire, figures, policy, time, trace};

pub use attached::topic::Attached;
pub use attached::value::{Expired, Expiry};
pub use backoff::Backoff;
/// The crate `bytes`, whose `Bytes` is the type of keys and raw payloads.
pub use bytes;
pub use client::Client;
#[doc(inline)]
pub use connection::Tls;
#[doc(inline)]
pub use error::{Error, ErrorKind, Result};
pub use lapse::Lapse;
pub use listener::{Listener, ListenerBuilder, shutdown_signal};
pub use outcome::{Done, Failure, Outcome};
pub use schedule::{Key, NewArm, Schedule};
pub use servers::Servers;
#[doc(inline)]
pub use time::When;
pub use topic::{Priority, Topic};
#[doc(inline)]
pub use wire::{ArmResult, Cancelled, Receipt, Rescheduled};

/// Policies and counts of [`Attached`] topics, and the values that they keep.
pub mod attach {
    pub use crate::attached::value::KeptValue;
    #[doc(inline)]
    pub use crate::policy::{Treatment, WriteBack};
    pub use crate::schedule::AttachedCounts;
}

/// Timers that ended without success: their reasons, their failed attempts, and how to read and replay them.
pub mod dead_letters {
    pub use crate::schedule::{DeadLetter, DeadLetters, Undecoded};
    #[doc(inline)]
    pub use crate::wire::{DeadReason, FailedAttempt, Replayed};
}

/// The hosts that handlers call, and their state.
pub mod destinations {
    #[doc(inline)]
    pub use crate::figures::{Destination, DestinationState, Destinations};
}

/// Reports of all running listeners.
pub mod fleet {
    #[doc(inline)]
    pub use crate::wire::{ListenerReport, NodeReport, RecentAttempts, TopicReport};
}

/// Forwarding to Redis lists and streams, from which workers in any language read.
pub mod forward {
    pub use crate::schedule::ForwardTo;
    #[doc(inline)]
    pub use crate::wire::Forwarded;
}

/// The state of a listener in this process.
pub mod health {
    pub use crate::listener::{AttachedBacklog, Capacity, Health, TopicHealth};
    pub use crate::runtime::stream_state::EventMode;
}

/// Limits of keys, payloads, delays and leases.
pub mod limits {
    #[doc(inline)]
    pub use crate::wire::{MAX_KEY, MAX_PAYLOAD};

    #[doc(inline)]
    pub use crate::time::MAX_DELAY;
    pub use crate::topic::MIN_LEASE;
}

/// Requests that arm timers, and timers as a [`Schedule`] reads them.
pub mod timers {
    #[doc(inline)]
    pub use crate::id::ArmingId;
    pub use crate::schedule::{ArmRequest, BulkRequest, KeyArgs, Timer, TimerPhase};
    #[doc(inline)]
    pub use crate::wire::{Durably, MarkerKey, Reached};
}
