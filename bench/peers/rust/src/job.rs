use std::{
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rand::seq::SliceRandom;

use crate::Settings;

/// The payload for systems that encode JSON themselves.
pub type Payload = serde_json::Map<String, serde_json::Value>;

/// One job to offer.
#[derive(Debug, Clone)]
pub struct Job {
    pub number: usize,
    /// In milliseconds since 1970.
    pub due: u64,
    pub payload: String,
}

/// The order in which jobs are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Due,
    Shuffled,
}

impl FromStr for Order {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "due" => Ok(Self::Due),
            "shuffled" => Ok(Self::Shuffled),
            _ => Err("neither `due` nor `shuffled`"),
        }
    }
}

impl Job {
    /// Creates the jobs of the settings, in their order. `due` maps a job's number to its due time.
    pub fn many(settings: &Settings, due: impl Fn(usize) -> u64) -> Vec<Self> {
        let job = |number| Self { number, due: due(number), payload: settings.payload.clone() };
        let mut jobs: Vec<_> = (0..settings.count).map(job).collect();
        if settings.order == Order::Shuffled {
            jobs.shuffle(&mut rand::rng());
        }
        jobs
    }

    /// Adds the due time to the payload, so that a handler can measure its lateness.
    pub fn with_due(mut self) -> Self {
        let body = self.payload.trim_end().trim_end_matches('}');
        self.payload = format!(r#"{body},"due":{}}}"#, self.due);
        self
    }
}

/// Parses a payload, which is a JSON object.
pub fn object(payload: &str) -> serde_json::Result<Payload> {
    serde_json::from_str(payload)
}

/// Returns the time in milliseconds since 1970, rounded down.
pub fn now_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).expect("before the year 584 million")
}

/// Returns the time until `due`; zero if it has passed.
pub fn until(due: u64) -> Duration {
    Duration::from_millis(due).saturating_sub(since_1970())
}

pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}
