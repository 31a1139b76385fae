//! What the environment says is to be done.

use std::str::FromStr;

use bytes::Bytes;

use crate::Fault;

/// What to measure, and how much of it.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// `BENCH_URL`
    pub(crate) url: String,
    /// `BENCH_COUNT`
    pub(crate) count: usize,
    /// `BENCH_CONCURRENCY`
    pub(crate) concurrency: usize,
    /// `BENCH_RATE`: jobs a second; zero where there is none.
    pub(crate) rate: f64,
    /// `BENCH_ORDER` is `shuffled`
    pub(crate) shuffled: bool,
    /// `BENCH_PAYLOAD`
    pub(crate) payload: Bytes,
    /// `BENCH_BEHIND`: jobs that are offered before, due in a day.
    pub(crate) behind: usize,
    /// `BENCH_LINE`: the server by a line on which requests are counted, for the listener alone.
    pub(crate) line: Option<String>,
    /// `BENCH_TOPICS`
    pub(crate) topics: usize,
    /// `BENCH_LISTENERS`
    pub(crate) listeners: usize,
    /// Whether timers have visible keys.
    pub(crate) triggers: bool,
}

impl Orders {
    /// Reads the environment.
    pub(crate) fn read(triggers: bool) -> Result<Self, Fault> {
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
            triggers,
        })
    }

    /// Jobs a second, where there must be some.
    pub(crate) fn rate(&self) -> Result<f64, Fault> {
        if self.rate > 0.0 { Ok(self.rate) } else { Err("BENCH_RATE must be more than zero".into()) }
    }
}

fn number<T: FromStr>(name: &str, default: T) -> Result<T, Fault> {
    match std::env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => text.parse().map_err(|_| format!("{name} is no number: {text:?}").into()),
    }
}
