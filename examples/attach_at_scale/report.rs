//! The output: progress, costs, and the last line.

use std::time::{Duration, SystemTime};

use keylapse::stats::Stats;
use keylapse_support::Server;

use crate::Stage;
use crate::ledger::{Tally, percentile};
use crate::settings::Settings;
use crate::station::Received;
use crate::writer::Orders;

/// The costs of keylapse for its server, less those of the other server for the same keys.
pub(crate) struct Costs {
    pub(crate) enrolment: (f64, i64, i64),
    pub(crate) firing: (f64, i64, i64),
    /// Keys that scans had read until then. A second scan counts them again.
    pub(crate) scanned: u64,
    /// Orders that were tracked when the first was due.
    pub(crate) enrolled: u64,
}

pub(crate) fn print_line(what: &str) {
    println!("{what}");
}

pub(crate) fn opening(settings: &Settings, server: &Server) {
    let Settings { foreign, orders, span, plain, flags, scan_rate, values } = settings;
    println!(
        "{orders} orders, due over {span:?}, among {foreign} other keys. Values of up to {values} bytes are kept.
keylapse listens on one server, and a plain subscriber on another, until {plain:?} after the last deadline.
Both are private servers, {}, with notify-keyspace-events {flags}.
A scan reads {scan_rate} keys a second.\n",
        server.version()
    );
}

pub(crate) fn enrolled(stats: &Stats, orders: &Orders, took: Duration, enrolled: u64) {
    let left = orders.first().duration_since(SystemTime::now()).unwrap_or_default();
    println!(
        "{enrolled} of {} orders are tracked after {took:.1?}, {left:.1?} before the first is due (mode: {})",
        orders.count(),
        stats.mode()
    );
    if enrolled < orders.count() {
        println!("! the scan was too slow: the other orders fire late, and without their values");
    }
}

/// Prints the results, and returns whether every guarantee was kept.
pub(crate) fn ending(
    stage: &Stage,
    stats: &Stats,
    tally: &Tally,
    orders: &Orders,
    costs: &Costs,
    expired_keys: u64,
) -> bool {
    let (ours, plain) = (stage.ours.received(), stage.plain.received());
    // The server counts all expired keys: orders, and keylapse's heartbeat keys, which the subscriber counts.
    let expired = expired_keys.saturating_sub(ours.heartbeats);
    lines(stats, tally, costs, &ours);
    for what in violations(stats, tally, orders, expired, &ours) {
        println!("! {what}");
    }
    let late = plain_lateness(orders, &plain);
    print_plain(&late, orders, stage.settings.plain);
    println!(
        "attached={} expired={expired} fired={} lost={} unexplained_duplicates={} early={} late_p50_ms={} \
         late_p99_ms={} foreign={} plain_heard={} plain_late_p50_ms={}",
        costs.enrolled,
        tally.fired,
        tally.lost,
        tally.unexplained,
        tally.early,
        percentile(&tally.late, 50),
        percentile(&tally.late, 99),
        stage.settings.foreign,
        late.len(),
        percentile(&late, 50),
    );
    tally.is_clean()
}

fn lines(stats: &Stats, tally: &Tally, costs: &Costs, ours: &Received) {
    let Costs { enrolment: (cpu, memory, dataset), firing, scanned, enrolled } = costs;
    let per_key = |bytes: i64| bytes as f64 / (*enrolled).max(1) as f64;
    let of = stats.attached(crate::TOPIC).unwrap_or_default();
    println!(
        "
Cost of keylapse for its server, less that of the other server in the same time:
  tracking   {:.2} s of CPU for each million scanned keys ({cpu:.2} s for {scanned})
  memory     {:.0} bytes for each tracked order, {:.0} without connections and scripts
  firing     {:.0} µs of CPU for each order: checked, recorded, claimed and settled
Time from the deadline of an order to the start of its handler, by the clock of this machine:
  p50 {} ms, p99 {} ms, latest {} ms; the library reports p50 {} ms
Other counts:
  values received {}, not tracked in time {}, recovered {}, explained duplicates {},
  heartbeat keys {}, recorded expiries {}",
        cpu / *scanned as f64 * 1e6,
        per_key(*memory),
        per_key(*dataset),
        firing.0 / tally.fired.max(1) as f64 * 1e6,
        percentile(&tally.late, 50),
        percentile(&tally.late, 99),
        percentile(&tally.late, 100),
        percentile(&tally.reported, 50),
        tally.with_value,
        tally.unknown,
        tally.recovered,
        tally.explained,
        ours.heartbeats,
        of.recorded,
    );
    println!();
}

/// Returns the violations of guarantees, as text.
fn violations(stats: &Stats, tally: &Tally, orders: &Orders, expired: u64, ours: &Received) -> Vec<String> {
    let of = stats.attached(crate::TOPIC).unwrap_or_default();
    let received = ours.orders.len() as u64;
    [
        (tally.lost, "orders never fired"),
        (tally.early, "orders fired before their deadline"),
        (tally.unexplained, "orders fired twice, and the library did not report them as possible repeats"),
        (tally.wrong_value, "orders fired with another value than was written"),
        (tally.wrong_deadline, "orders fired with another deadline than was written"),
        (
            orders.count().abs_diff(expired),
            "is the difference between the orders and the server's count of expired keys",
        ),
        (expired.abs_diff(received), "is the difference between that count and the received events"),
        (ours.others, "other keys expired"),
        (of.write_errors, "calls to track or check keys failed"),
        (
            of.before_heartbeat + of.stale,
            "expired events were stale, or arrived before the first heartbeat key",
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect()
}

/// Prints the events that the plain subscriber received and missed.
fn print_plain(late: &[Duration], orders: &Orders, until: Duration) {
    let (received, all) = (late.len() as u64, orders.count());
    println!(
        "Without keylapse, for comparison: a plain program subscribed to expired keys, on the other server.
  It received {received} of {all} orders until {until:?} after the last deadline. {} would still be open.
  Half of those came within {} ms of their deadlines, the last after {} ms.
",
        all - received,
        percentile(late, 50),
        percentile(late, 100),
    );
}

/// Returns the lateness of the events that the plain subscriber received, sorted.
fn plain_lateness(orders: &Orders, received: &Received) -> Vec<Duration> {
    let deadline = |order| SystemTime::UNIX_EPOCH + Duration::from_millis(orders.deadline(order));
    let mut late: Vec<_> = (received.orders.iter())
        .map(|(order, at)| at.duration_since(deadline(*order)).unwrap_or_default())
        .collect();
    late.sort_unstable();
    late
}
