//! What is printed: lines as it goes on, what it cost, and the line at the end.

use std::time::{Duration, SystemTime};

use keylapse::stats::Stats;
use keylapse_support::Server;

use crate::Stage;
use crate::ledger::{Tally, percentile};
use crate::settings::Settings;
use crate::station::Heard;
use crate::writer::Orders;

/// What keylapse cost its server, beyond what the other server spent on the same keys.
pub(crate) struct Costs {
    pub(crate) enrolment: (f64, i64, i64),
    pub(crate) firing: (f64, i64, i64),
    /// Keys that scans looked at until then: as many as there are, once or twice.
    pub(crate) scanned: u64,
    /// Orders enrolled when the first was due.
    pub(crate) enrolled: u64,
}

pub(crate) fn say(what: &str) {
    println!("{what}");
}

pub(crate) fn opening(settings: &Settings, server: &Server) {
    let Settings { foreign, orders, span, plain, flags, scan_rate, values } = settings;
    println!(
        "{orders} orders, due over {span:?}, among {foreign} keys of no interest; values of up to {values} bytes
are kept. keylapse listens on one server, a plain subscriber to another, until {plain:?} after the last
deadline. Both servers are private ones, {}, with notify-keyspace-events {flags}.
A scan looks at {scan_rate} keys a second.\n",
        server.version()
    );
}

pub(crate) fn enrolled(stats: &Stats, orders: &Orders, took: Duration, enrolled: u64) {
    let left = orders.first().duration_since(SystemTime::now()).unwrap_or_default();
    println!(
        "{enrolled} of {} orders are enrolled after {took:.1?}, {left:.1?} before the first is due (mode: {})",
        orders.count(),
        stats.mode()
    );
    if enrolled < orders.count() {
        println!(
            "! the scan was too slow for all of them: the others are heard late, and without their values"
        );
    }
}

/// Prints how it ended; whether every promise was kept.
pub(crate) fn ending(
    stage: &Stage,
    stats: &Stats,
    tally: &Tally,
    orders: &Orders,
    costs: &Costs,
    expired_keys: u64,
) -> bool {
    let (ours, plain) = (stage.ours.heard(), stage.plain.heard());
    // The server counts every key that expires: orders, and keylapse's canaries, which a subscriber counts.
    let expired = expired_keys.saturating_sub(ours.canaries);
    lines(stats, tally, costs, &ours);
    for what in complaints(stats, tally, orders, expired, &ours) {
        println!("! {what}");
    }
    let late = plain_lateness(orders, &plain);
    words_for_plain(&late, orders, stage.settings.plain);
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

fn lines(stats: &Stats, tally: &Tally, costs: &Costs, ours: &Heard) {
    let Costs { enrolment: (cpu, memory, dataset), firing, scanned, enrolled } = costs;
    let per_key = |bytes: i64| bytes as f64 / (*enrolled).max(1) as f64;
    let of = stats.attached(crate::TOPIC).unwrap_or_default();
    println!(
        "
What keylapse cost its server, beyond what the other server spent in the same time:
  enrolment  {:.2} s of CPU for each million keys scanned ({cpu:.2} s for {scanned})
  memory     {:.0} bytes for each enrolled order, {:.0} without connections and scripts
  firing     {:.0} µs of CPU for each order: looked at, announced, noted, claimed and settled
How late handlers started, by the clock of this machine and of the servers, after the order's deadline:
  p50 {} ms, p99 {} ms, latest {} ms; the library said p50 {} ms
What else was counted:
  values handed over {}, not enrolled in time {}, recovered {}, explained duplicates {},
  canaries {}, expiries noted {}",
        cpu / *scanned as f64 * 1e6,
        per_key(*memory),
        per_key(*dataset),
        firing.0 / tally.fired.max(1) as f64 * 1e6,
        percentile(&tally.late, 50),
        percentile(&tally.late, 99),
        percentile(&tally.late, 100),
        percentile(&tally.said, 50),
        tally.with_value,
        tally.unknown,
        tally.recovered,
        tally.explained,
        ours.canaries,
        of.recorded,
    );
    println!();
}

/// What should not have happened.
fn complaints(stats: &Stats, tally: &Tally, orders: &Orders, expired: u64, ours: &Heard) -> Vec<String> {
    let of = stats.attached(crate::TOPIC).unwrap_or_default();
    let heard = ours.orders.len() as u64;
    [
        (tally.lost, "orders never fired"),
        (tally.early, "orders fired before their deadline"),
        (tally.unexplained, "orders fired twice, and nobody said that they might"),
        (tally.wrong_value, "orders came with another value than was written"),
        (tally.wrong_deadline, "orders came with another deadline than was written"),
        (
            orders.count().abs_diff(expired),
            "is the difference between orders and the server's count of expiries",
        ),
        (expired.abs_diff(heard), "is the difference between that count and what was announced"),
        (ours.others, "keys expired that nobody expected to"),
        (of.write_errors, "calls to enrol or to judge failed"),
        (of.before_heartbeat + of.stale, "expiries were heard too early or too late to be told apart"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect()
}

/// What the plain subscriber lost, for who has read nothing else.
fn words_for_plain(late: &[Duration], orders: &Orders, until: Duration) {
    let (heard, all) = (late.len() as u64, orders.count());
    println!(
        "The same orders without keylapse: a plain program subscribed to expired keys, on the other server.
  {heard} of {all} it had heard of {until:?} after the last was due; {} nobody would have closed by then
  half of those that it heard of came within {} ms of their deadlines, the last after {} ms
",
        all - heard,
        percentile(late, 50),
        percentile(late, 100),
    );
}

/// How late the plain subscriber heard of orders, sorted; of those that it heard at all.
fn plain_lateness(orders: &Orders, heard: &Heard) -> Vec<Duration> {
    let deadline = |order| SystemTime::UNIX_EPOCH + Duration::from_millis(orders.deadline(order));
    let mut late: Vec<_> = (heard.orders.iter())
        .map(|(order, at)| at.duration_since(deadline(*order)).unwrap_or_default())
        .collect();
    late.sort_unstable();
    late
}
