//! Redis and Valkey key expiry made dependable.

#![forbid(unsafe_code)]

mod backoff;
mod calls;
mod claim;
mod dispatch;
mod error;
mod escape;
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
mod time;
mod topic;
mod topology;

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
pub use stats::{ListenerStats, TopicStats};
pub use store::Reached;
pub use store::record::{Failed, Reason};
pub use time::{MAX_DEADLINE_MS, MAX_DELAY, ServerTime, When, WireWhen};
pub use topic::{MAX_KEY, MAX_PAYLOAD, MIN_LEASE, Topic};
