//! Redis and Valkey key expiry, made dependable.
//!
//! People use TTLs as timers: an unpaid order's key expires and the order must
//! be closed; a merchant must be told of a payment now, in 15 s, in 3 min, in
//! 6 h, until it answers. Redis announces an expired key late, once, to whoever
//! happens to listen, and without its value. keylapse keeps every deadline in a
//! sorted set beside the keys: **the sorted set is the timer, the notification
//! is a hint and a proof, and an atomic claim is the judge.** So what was missed
//! is recovered, and nothing fires early, or twice at once.
//!
//! Three things are all there is to learn:
//!
//! - a [`Topic`] says what a timer is: the pattern of its keys, the type of its
//!   payload, how its attempts are made;
//! - a [`Schedule`] arms, cancels and looks at timers;
//! - a [`Listener`] runs an async function for each [`Lapse`].
//!
//! The repository's `docs/` is a guide: `docs/first-steps.md` takes ten minutes, and `docs/glossary.md` explains
//! every word in one sentence.
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
//!     println!("attempt {}: telling {url} of {amount}", lapse.attempt());
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
//! The names of most programs stand here. The others are in modules by subject, such as [`timers`], [`dead_letters`],
//! [`attach`], [`health`] and [`stats`].
//!
//! # Delivery
//!
//! At least once, never "exactly once". Each lapse has an [id](Lapse::id) that is the
//! same for all its attempts, also after a crash or a replay: pass it on as an
//! idempotency key. A lapse runs again within its lease (default 30 s) and
//! about a second after its listener died.
//!
//! # Tests
//!
//! The crate `keylapse-testing` runs your handlers under the real listener, in virtual time, with notifications that
//! a test can break.
//!
//! # Logs
//!
//! Events and spans of [`tracing`] with the fields `topic`, `key` (escaped, at
//! most 128 bytes), `attempt`, `source`, `lateness_us` and `error`. Payloads and
//! passwords never appear; what a handler's error says does.

#![forbid(unsafe_code)]
// What a program gets it can also name.
#![warn(unnameable_types)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attached;
mod backlog;
mod backoff;
mod client;
#[allow(unreachable_pub, reason = "`inside` passes them on")]
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
/// The crate whose `Bytes` keys and raw payloads are.
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
pub use wire::{Arming, Cancelled, Receipt, Rescheduled};

/// The policies of [`Attached`] topics, the values that they keep, and what attaching would find.
pub mod attach {
    pub use crate::attached::value::KeptValue;
    #[doc(inline)]
    pub use crate::policy::{Treatment, WriteBack};
    pub use crate::schedule::AttachedCounts;
}

/// Timers that have been given up: their reasons, their attempts, and how they are read and replayed.
pub mod dead_letters {
    pub use crate::schedule::{DeadLetter, DeadLetters, Undecoded};
    #[doc(inline)]
    pub use crate::wire::{DeadReason, FailedAttempt, Replayed};
}

/// The hosts that handlers call, as a listener reports them.
pub mod destinations {
    #[doc(inline)]
    pub use crate::figures::{Destination, DestinationState, Destinations};
}

/// All listeners, as each reports itself.
pub mod fleet {
    #[doc(inline)]
    pub use crate::wire::{ListenerReport, NodeReport, RecentAttempts, TopicReport};
}

/// Lists and streams, from which workers in any language read.
pub mod forward {
    pub use crate::schedule::ForwardTo;
    #[doc(inline)]
    pub use crate::wire::Forwarded;
}

/// The state of the listener of this program.
pub mod health {
    pub use crate::listener::{AttachedBacklog, Health, Places, TopicHealth};
    pub use crate::runtime::stream_state::EventMode;
}

/// The largest keys and payloads, the longest delay and the shortest lease.
pub mod limits {
    #[doc(inline)]
    pub use crate::wire::{MAX_KEY, MAX_PAYLOAD};

    #[doc(inline)]
    pub use crate::time::MAX_DELAY;
    pub use crate::topic::MIN_LEASE;
}

/// Requests that arm timers, and the timers that a [`Schedule`] finds.
pub mod timers {
    #[doc(inline)]
    pub use crate::id::ArmingId;
    pub use crate::schedule::{ArmRequest, BulkRequest, KeyArgs, Timer, TimerPhase};
    #[doc(inline)]
    pub use crate::wire::{Durably, Reached, TriggerKey};
}
