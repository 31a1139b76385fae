use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::sync::Notify;

use crate::{Payload, job::since_1970};

/// A record that every peer's handler calls: it counts starts, and notes their times.
#[derive(Debug, Clone)]
pub struct Handler(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    wanted: usize,
    ends: bool,
    asks_due: bool,
    starts: Mutex<Starts>,
    all: Notify,
}

/// When handlers started, and how late each was, in milliseconds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Starts {
    pub(crate) at: Vec<Instant>,
    pub(crate) late_ms: Vec<f64>,
}

#[derive(Deserialize)]
struct Due {
    due: u64,
}

impl Handler {
    pub(crate) fn counting(wanted: usize) -> Self {
        Self::new(wanted, true, false)
    }

    pub(crate) fn timing(wanted: usize) -> Self {
        Self::new(wanted, true, true)
    }

    pub(crate) fn never_ending(wanted: usize) -> Self {
        Self::new(wanted, false, false)
    }

    fn new(wanted: usize, ends: bool, asks_due: bool) -> Self {
        Self(Arc::new(Shared { wanted, ends, asks_due, starts: Mutex::default(), all: Notify::new() }))
    }

    /// Handles a job whose payload came as text.
    pub async fn handle_text(&self, payload: &str) {
        let due = || serde_json::from_str(payload).map(|Due { due }| due).ok();
        self.started(due);
        self.end().await;
    }

    /// Handles a job whose payload the system has parsed.
    pub async fn handle_object(&self, payload: &Payload) {
        self.started(|| payload.get("due")?.as_u64());
        self.end().await;
    }

    /// Handles a job of which only the due time is left.
    pub async fn handle_due(&self, due: Option<u64>) {
        self.started(|| due);
        self.end().await;
    }

    fn started(&self, due: impl FnOnce() -> Option<u64>) {
        let (at, time) = (Instant::now(), since_1970());
        let late = if self.0.asks_due { due().map(|due| lateness_ms(time, due)) } else { None };
        let mut starts = self.0.starts.lock().expect("no holder panics");
        starts.at.push(at);
        starts.late_ms.extend(late);
        if starts.at.len() == self.0.wanted {
            self.0.all.notify_one();
        }
    }

    async fn end(&self) {
        if !self.0.ends {
            pending().await
        }
    }

    /// Waits until as many handlers as wanted have started, or none has for as long as `max_quiet`.
    pub(crate) async fn all_started(&self, max_quiet: Duration) {
        let mut before = 0;
        while tokio::time::timeout(max_quiet, self.0.all.notified()).await.is_err() {
            let now = self.0.starts.lock().expect("no holder panics").at.len();
            if now == before {
                return;
            }
            before = now;
        }
    }

    pub(crate) fn starts(&self) -> Starts {
        self.0.starts.lock().expect("no holder panics").clone()
    }
}

fn lateness_ms(time: Duration, due: u64) -> f64 {
    (time.as_secs_f64() - Duration::from_millis(due).as_secs_f64()) * 1_000.0
}
