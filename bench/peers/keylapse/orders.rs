//! The settings of a run, from the environment.

use std::str::FromStr;

use bytes::Bytes;

use crate::Fault;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// `BENCH_URL`
    pub(crate) url: String,
    /// `BENCH_COUNT`
    pub(crate) count: usize,
    /// `BENCH_CONCURRENCY`
    pub(crate) concurrency: usize,
    /// `BENCH_RATE`: jobs a second; zero if not set.
    pub(crate) rate: f64,
    /// `BENCH_ORDER` is `shuffled`
    pub(crate) shuffled: bool,
    /// `BENCH_PAYLOAD`
    pub(crate) payload: Bytes,
    /// `BENCH_BEHIND`: the number of jobs that are due in a day, offered before the others.
    pub(crate) behind: usize,
    /// `BENCH_LINE`: the URL of a proxy that counts requests, for the listener only.
    pub(crate) line: Option<String>,
    /// `BENCH_TOPICS`
    pub(crate) topics: usize,
    /// `BENCH_LISTENERS`
    pub(crate) listeners: usize,
    /// True if timers have marker keys.
    pub(crate) marker_keys: bool,
}

impl Orders {
    /// Reads the environment.
    pub(crate) fn read(marker_keys: bool) -> Result<Self, Fault> {
        Ok(Self {
            url: std::env::var("BENCH_URL").map_err(|_| "BENCH_URL is not set")?,
            count: number("BENCH_COUNT", 1000)?,
            concurrency: number("BENCH_CONCURRENCY", 1000)?,
            rate: number("BENCH_RATE", 0.0)?,
            shuffled: std::env::var("BENCH_ORDER").is_ok_and(|order| order == "shuffled"),
            payload: std::env::var("BENCH_PAYLOAD").unwrap_or_default().into(),
            behind: number("BENCH_BEHIND", 0)?,
            line: std::env::var("BENCH_LINE").ok(),
            topics: number("BENCH_TOPICS", 1)?,
            listeners: number("BENCH_LISTENERS", 1)?,
            marker_keys,
        })
    }

    /// Returns the rate in jobs a second. Fails if it is zero.
    pub(crate) fn rate(&self) -> Result<f64, Fault> {
        if self.rate > 0.0 { Ok(self.rate) } else { Err("BENCH_RATE must be more than zero".into()) }
    }
}

fn number<T: FromStr>(name: &str, default: T) -> Result<T, Fault> {
    match std::env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => text.parse().map_err(|_| format!("{name} is not a number: {text:?}").into()),
    }
}
