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
//! ```no_run
//! use std::time::Duration;
//! use keylapse::{Backoff, Done, Failure, Lapse, Listener, Schedule, Topic};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Notice { url: String, amount: u64 }
//!
//! async fn notify(lapse: Lapse<Notice>) -> Result<Done, Failure> {
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
//! schedule.arm(&notices, ["1615283234"], Duration::from_secs(15), &notice).await?;
//!
//! // a listener
//! Listener::builder("redis://127.0.0.1/")
//!     .on(notices, notify)
//!     .build()?
//!     .run_until(std::future::pending())
//!     .await
//! # }
//! ```
//!
//! # Delivery
//!
//! At least once, never "exactly once". Each attempt has a stable
//! [id](Lapse::id), the same when it runs again after a crash: pass it on as an
//! idempotency key. A lapse runs again within its lease (default 30 s) and
//! about a second after its listener died.
//!
//! # Tests
//!
//! The feature `testing` brings `keylapse::testing`: your handlers under the real
//! listener, in virtual time, with notifications that a test can break.
//!
//! # Logs
//!
//! Events and spans of [`tracing`] with the fields `topic`, `key` (escaped, at
//! most 128 bytes), `attempt`, `source`, `lateness_us` and `error`. Payloads and
//! passwords never appear; what a handler's error says does.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attach;
mod backoff;
mod calls;
mod claim;
mod clock;
mod complaint;
#[cfg(test)]
mod defaults;
mod dispatch;
mod error;
mod escape;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handler;
mod id;
mod lapse;
mod listener;
mod outcome;
pub mod pattern;
mod payload;
mod schedule;
mod settle;
mod stats;
mod stop;
pub mod store;
mod subscriber;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
mod time;
mod topic;
mod topology;

pub use attach::{Attached, Expired, Expiry, Mode, Unenrolled, Value, Vanished, WriteBack};
pub use backoff::Backoff;
pub use error::{Error, ErrorKind, Result};
pub use handler::Handler;
pub use id::{ArmingId, CancelId, Lane, Token};
pub use lapse::{Lapse, Source};
pub use listener::{Listener, ListenerBuilder, Stats};
pub use outcome::{Done, Failure, Outcome};
pub use pattern::{Captures, Pattern, PatternError};
pub use schedule::{
    ArmManyRequest, ArmRequest, Arming, Cancelled, DeadLetter, Durably, Key, KeyArgs, NewArm, Phase, Receipt,
    Replayed, Rescheduled, Schedule, Timer, TriggerKey,
};
pub use stats::{AttachedStats, ListenerStats, TopicStats};
pub use store::Reached;
pub use store::record::{Failed, Reason};
pub use time::{MAX_DEADLINE_MS, MAX_DELAY, ServerTime, When, WireWhen};
pub use topic::{MAX_KEY, MAX_PAYLOAD, MIN_LEASE, Topic};

/// The README's program and test are compiled with the examples of this
/// documentation, and so are the guides to tests and to attached topics.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/testing.md")]
#[doc = include_str!("../docs/attach.md")]
struct Guides;
