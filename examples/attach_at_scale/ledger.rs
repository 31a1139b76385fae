//! Records the runs of the handler, and checks them at the end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::{Expired, Expiry, Lapse};

use crate::writer::{Orders, ms};

/// All runs of the handler, by order.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<HashMap<u64, Vec<Run>>>);

/// One run.
struct Run {
    /// When the handler started, by the clock that this machine and the server share.
    at: SystemTime,
    /// The minimum lateness, as the library reports it.
    reported: Duration,
    /// The deadline that the library reports, in ms since 1970.
    deadline: u64,
    deadline_known: bool,
    value: Option<Bytes>,
    expiry: Expiry,
    /// `true` if an earlier run of the attempt lost its lease.
    again: bool,
}

impl Ledger {
    /// Records a start of the handler.
    pub(crate) fn started(&self, lapse: &Lapse<Expired<Bytes>>) {
        let at = SystemTime::now();
        let expired = lapse.payload();
        let Some(order) = Orders::number(lapse.key()) else { return };
        let run = Run {
            at,
            reported: lapse.lateness(),
            deadline: ms(lapse.deadline()),
            deadline_known: expired.deadline_known(),
            value: expired.value().cloned(),
            expiry: expired.expiry(),
            again: lapse.is_redelivered(),
        };
        self.lock().entry(order).or_default().push(run);
    }

    /// Returns the number of orders that have fired.
    pub(crate) fn fired(&self) -> u64 {
        self.lock().len() as u64
    }

    pub(crate) fn tally(&self, orders: &Orders) -> Tally {
        let mut tally = Tally::default();
        let runs = self.lock();
        for order in 0..orders.count() {
            match runs.get(&order) {
                Some(runs) => tally.add(order, orders, runs),
                None => tally.lost += 1,
            }
        }
        tally.late.sort_unstable();
        tally.reported.sort_unstable();
        tally
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sums over the orders.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) fired: u64,
    /// Orders whose handler never ran.
    pub(crate) lost: u64,
    /// Runs before the order's deadline.
    pub(crate) early: u64,
    /// Further runs of an order that the library reported as possible repeats.
    pub(crate) explained: u64,
    /// Other further runs of an order.
    pub(crate) unexplained: u64,
    /// First runs with the value that was written.
    pub(crate) with_value: u64,
    /// First runs with another value.
    pub(crate) wrong_value: u64,
    /// First runs of orders that were not tracked.
    pub(crate) unknown: u64,
    /// First runs with another deadline than the writer's.
    pub(crate) wrong_deadline: u64,
    pub(crate) recovered: u64,
    /// Lateness of first runs, sorted: by the clock, and as the library reports it.
    pub(crate) late: Vec<Duration>,
    pub(crate) reported: Vec<Duration>,
}

impl Tally {
    fn add(&mut self, order: u64, orders: &Orders, runs: &[Run]) {
        let deadline = SystemTime::UNIX_EPOCH + Duration::from_millis(orders.deadline(order));
        let first = &runs[0];
        self.fired += 1;
        self.early += runs.iter().filter(|run| run.at < deadline).count() as u64;
        for run in &runs[1..] {
            let is_reported = run.expiry == Expiry::Ambiguous || run.again;
            *if is_reported { &mut self.explained } else { &mut self.unexplained } += 1;
        }
        let right = first.value.as_ref().map(|value| *value == Orders::value(order));
        self.with_value += u64::from(right == Some(true));
        self.wrong_value += u64::from(right == Some(false));
        self.unknown += u64::from(!first.deadline_known);
        self.wrong_deadline += u64::from(first.deadline_known && first.deadline != ms(deadline));
        self.recovered += u64::from(first.expiry == Expiry::Recovered);
        self.late.push(first.at.duration_since(deadline).unwrap_or_default());
        self.reported.push(first.reported);
    }

    /// Returns whether every guarantee was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.early + self.unexplained + self.wrong_value + self.wrong_deadline == 0
    }
}

/// Returns a percentile of sorted times in ms; `none` if there are no times.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> String {
    let Some(last) = sorted.len().checked_sub(1) else { return "none".to_owned() };
    format!("{:.1}", sorted[last * percent / 100].as_secs_f64() * 1000.0)
}
