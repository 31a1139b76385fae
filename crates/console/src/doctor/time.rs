//! Checks the server's clock, and predicts and measures how late the server announces expired keys.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse_connection::{Value, cmd, pipe};
use tokio::time::{Instant, sleep, sleep_until};

use crate::counted;
use crate::error::{Error, ErrorKind, Result};
use crate::inside::receiving::{ExpirySubscription, SubscribedConnection};

use super::codes::{self, Code};
use super::examination::{ServerExamination, answered};
use super::service::Site;

/// The times of the server and of this machine at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// The server's time, in microseconds since 1970.
    server: u64,
    /// This machine's time, in the middle between request and answer.
    here: SystemTime,
    /// The monotonic time, in the middle between request and answer.
    steady: Instant,
    /// The uncertainty in microseconds: the time between request and answer.
    doubt: u64,
}

const MAX_CLOCK_DIFFERENCE_US: i64 = 2_000_000;
/// The allowed difference between the server's clock and monotonic time. Clocks are slewed, and machines are busy.
const MAX_CLOCK_STEP_US: i64 = 100_000;

/// Reads both clocks. Returns `None` if the server refuses TIME, which the check of permissions reports.
pub(super) async fn clocks(case: &ServerExamination) -> Result<Option<Clocks>> {
    let asked = Instant::now();
    let answer = case.ask("reading the server's clock", &cmd("TIME")).await?;
    let elapsed = asked.elapsed();
    let time =
        answer.ok().and_then(|answer| keylapse_connection::from_redis_value::<(u64, u64)>(answer).ok());
    Ok(time.map(|(seconds, micros)| Clocks {
        server: seconds.saturating_mul(1_000_000).saturating_add(micros),
        here: SystemTime::now() - elapsed / 2,
        steady: asked + elapsed / 2,
        doubt: micros_of(elapsed),
    }))
}

/// Compares the clocks with each other and with those at the start of the examination.
pub(super) async fn clock(case: &mut ServerExamination) -> Result<()> {
    let Some(before) = case.clocks else { return Ok(()) };
    let Some(after) = clocks(case).await? else { return Ok(()) };
    let step = step(&before, &after);
    if exceeds(step, MAX_CLOCK_STEP_US, before.doubt + after.doubt) {
        add_clock_finding(case, &codes::CLOCK_STEPS, format!("by {} ms during the examination", step / 1000));
        return Ok(());
    }
    let apart =
        signed(after.server) - signed(micros_of(after.here.duration_since(UNIX_EPOCH).unwrap_or_default()));
    if exceeds(apart, MAX_CLOCK_DIFFERENCE_US, after.doubt) {
        let relation = if apart > 0 { "ahead of" } else { "behind" };
        add_clock_finding(
            case,
            &codes::CLOCKS_DIFFER,
            format!("the server's clock is {} ms {relation} this machine's", apart.abs() / 1000),
        );
    }
    Ok(())
}

/// Adds a finding with advice for the machine whose clock is probably wrong. A service sets its own clock correctly, so the
/// advice is for this machine then.
fn add_clock_finding(case: &mut ServerExamination, code: &Code, observed: String) {
    let site = Site::of(&case.address().endpoint(), &case.info);
    let prefix = if case.service().is_some() { String::new() } else { site.prefix() };
    case.add_finding_with(code, observed, &[("where", &prefix)]);
}

/// Returns by how many microseconds the server's clock has advanced more than monotonic time.
fn step(before: &Clocks, after: &Clocks) -> i64 {
    let steady = after.steady.saturating_duration_since(before.steady);
    signed(after.server) - signed(before.server) - signed(micros_of(steady))
}

fn exceeds(difference: i64, limit: i64, doubt: u64) -> bool {
    difference.unsigned_abs() > limit.unsigned_abs().saturating_add(doubt)
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

// The server runs `hz` expiry cycles per second. Each checks 20 keys with a TTL, and 5 more for each step of
// `active-expire-effort` above 1. It continues in the same cycle only if many of them have expired. The prediction is the
// time until the cycles have checked all keys.
const DEFAULT_HZ: u64 = 10;
const DEFAULT_EFFORT: u64 = 1;
/// A server without other keys needs at most one second.
const MAX_PREDICTED_LATENESS_SECS: f64 = 2.0;

pub(super) fn predicted(case: &mut ServerExamination) {
    if !case.takes_writes() || case.info.is_empty() {
        return;
    }
    let (hz, effort) = (case.number("hz"), case.number("active-expire-effort"));
    let keys = case.info.volatile_keys(case.db);
    let worst = worst_s(keys, hz.unwrap_or(DEFAULT_HZ), effort.unwrap_or(DEFAULT_EFFORT));
    case.lateness.plain_late_predicted_max_s = Some(worst);
    let known = if hz.is_some() { "" } else { " (the defaults, as the settings cannot be read)" };
    let observed = format!(
        "at worst {worst:.1} s late: {} with a TTL, hz {}, active-expire-effort {}{known}",
        counted(keys, "key"),
        hz.unwrap_or(DEFAULT_HZ),
        effort.unwrap_or(DEFAULT_EFFORT)
    );
    if worst > MAX_PREDICTED_LATENESS_SECS {
        case.add_finding_with(&codes::PLAIN_LATE, observed, &[("faster", faster(case))]);
    } else {
        case.add_finding(&codes::PLAIN_PREDICTED, observed);
    }
}

/// Returns the setting that speeds up expiry most. It costs processor time of the server.
fn faster(case: &ServerExamination) -> &'static str {
    let number = |name, default| case.number(name).unwrap_or(default);
    match (number("hz", DEFAULT_HZ), number("active-expire-effort", DEFAULT_EFFORT)) {
        (..100, _) => "hz 100",
        (_, ..10) => "active-expire-effort 10",
        _ => "hz 500",
    }
}

fn worst_s(keys: u64, hz: u64, effort: u64) -> f64 {
    let each_second = hz.max(1) * (20 + 5 * effort.saturating_sub(1));
    keys as f64 / each_second as f64
}

/// The number of probes of each kind.
const PROBES: u32 = 200;
/// How many probes one request writes. Their times of writing are nearly equal.
const PROBES_PER_REQUEST: usize = 20;
/// The pause after a deadline before a key is read, because a key is still alive in the millisecond of its deadline.
const MARGIN: Duration = Duration::from_millis(2);
/// How many times a key is read until it has expired.
const READS: u32 = 5;
/// How long an event on another connection can follow the answer.
const EVENT_DELIVERY_TIME: Duration = Duration::from_millis(200);

/// A key and its deadline.
type Probe = (Bytes, Instant);

/// Measures the lateness of expired events. Deadlines are spread over the first half of the window, so the server has at
/// least the second half to find each key.
pub(super) async fn measure(
    case: &mut ServerExamination,
    mut subscription: ExpirySubscription,
    window: Duration,
) -> Result<()> {
    let end = Instant::now() + window;
    let Some(plain) = write(case, "plain", window / 2).await? else { return Ok(()) };
    let Some(checked) = write(case, "touched", window / 2).await? else { return Ok(()) };
    let (connection, prefix) = (subscription.connection(), case.key(""));
    let done = async {
        let read = read_when_due(connection, &checked).await;
        sleep_until(end.max(Instant::now() + EVENT_DELIVERY_TIME)).await;
        read
    };
    let received = receive(&mut subscription, &prefix, done).await?;
    read_all(case, &plain).await?;
    report(case, &ProbeLateness::of(&plain, &received), &ProbeLateness::of(&checked, &received));
    Ok(())
}

/// Writes keys whose deadlines are spread over a time. Returns `None` if the server refuses, which another check reports.
async fn write(case: &ServerExamination, kind: &str, over: Duration) -> Result<Option<Vec<Probe>>> {
    let numbers: Vec<_> = (1..=PROBES).collect();
    let mut probes = Vec::new();
    for some in numbers.chunks(PROBES_PER_REQUEST) {
        let (mut commands, mut keys) = (pipe(), Vec::new());
        for number in some {
            let (key, life) = (case.key(&format!("{kind}:{number}")), over * *number / PROBES);
            let life = life.max(Duration::from_millis(1));
            commands.cmd("SET").arg(&key).arg("").arg("PX").arg(life.as_millis() as u64);
            keys.push((Bytes::from(key), life));
        }
        let asked = Instant::now();
        let answers = case.ask_each("writing keys that expire", &commands).await?;
        let at = asked + asked.elapsed() / 2;
        if answers.iter().any(Result::is_err) {
            return Ok(None);
        }
        probes.extend(keys.into_iter().map(|(key, life)| (key, at + life)));
    }
    Ok(Some(probes))
}

/// Returns the time at which the event of each key with a prefix arrived, until `done` completes.
async fn receive(
    subscription: &mut ExpirySubscription,
    prefix: &str,
    done: impl Future<Output = Result<()>>,
) -> Result<HashMap<Bytes, Instant>> {
    let (mut received, mut done) = (HashMap::new(), pin!(done));
    loop {
        let key = tokio::select! {
            biased;
            key = subscription.expired() => key,
            read = &mut done => return read.map(|()| received),
        };
        let ended =
            || Error::new(ErrorKind::Unreachable, "the subscription ended while lateness was measured");
        let key = key.ok_or_else(ended)?;
        if key.starts_with(prefix.as_bytes()) {
            received.entry(key).or_insert_with(Instant::now);
        }
    }
}

/// Reads keys just after their deadlines, as keylapse does with its own keys.
async fn read_when_due(connection: SubscribedConnection, probes: &[Probe]) -> Result<()> {
    for (key, due) in probes {
        sleep_until(*due + MARGIN).await;
        for _ in 0..READS {
            let answer = connection.ask("reading a key that is due", cmd("EXISTS").arg(&key[..])).await;
            match answered(answer)? {
                Ok(Value::Int(1)) => sleep(MARGIN).await,
                Ok(_) | Err(_) => break,
            }
        }
    }
    Ok(())
}

/// Reads all keys once, which deletes those that the server has not found by itself.
async fn read_all(case: &ServerExamination, probes: &[Probe]) -> Result<()> {
    let mut exists = cmd("EXISTS");
    probes.iter().for_each(|(key, _)| _ = exists.arg(&key[..]));
    case.ask("reading keys that are due", &exists).await.map(drop)
}

/// The lateness of one kind of probes.
#[derive(Debug, PartialEq)]
struct ProbeLateness {
    /// The lateness of probes whose event arrived, in seconds, in ascending order.
    late: Vec<f64>,
    /// The number of all probes.
    of: usize,
}

impl ProbeLateness {
    fn of(probes: &[Probe], received: &HashMap<Bytes, Instant>) -> Self {
        let late =
            |(key, due): &Probe| Some(received.get(key)?.saturating_duration_since(*due).as_secs_f64());
        let mut late: Vec<_> = probes.iter().filter_map(late).collect();
        late.sort_by(f64::total_cmp);
        Self { late, of: probes.len() }
    }

    /// Returns a percentile of the lateness of probes whose event arrived.
    fn quantile(&self, percent: usize) -> Option<f64> {
        let place = (self.late.len() * percent).div_ceil(100);
        self.late.get(place.saturating_sub(1)).copied()
    }

    fn are_all_received(&self) -> bool {
        self.late.len() == self.of
    }
}

fn report(case: &mut ServerExamination, plain: &ProbeLateness, checked: &ProbeLateness) {
    let figures = &mut case.lateness;
    figures.plain_late_p50_s = plain.quantile(50);
    figures.plain_late_max_s = plain.quantile(100);
    (figures.plain_received, figures.plain_probes) = (plain.late.len() as u64, plain.of as u64);
    figures.checked_late_p99_ms = checked.quantile(99).map(|seconds| seconds * 1000.0);
    (figures.checked_received, figures.checked_probes) = (checked.late.len() as u64, checked.of as u64);
    let shown =
        |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"));
    let of_plain = format!(
        "not read: {} of {} events arrived, half of them within {}, the last within {}",
        plain.late.len(),
        plain.of,
        shown(plain.quantile(50)),
        shown(plain.quantile(100))
    );
    let of_checked = format!(
        "read: {} of {} events arrived, 99 % of them within {}",
        checked.late.len(),
        checked.of,
        shown(checked.quantile(99))
    );
    if !plain.are_all_received() {
        let faster = faster(case);
        case.add_finding_with(&codes::PLAIN_NOT_RECEIVED, of_plain.clone(), &[("faster", faster)]);
    }
    if !checked.are_all_received() {
        case.add_finding(&codes::CHECKED_NOT_RECEIVED, of_checked.clone());
    }
    case.add_finding(&codes::MEASURED, format!("{of_plain}; {of_checked}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_difference_to_monotonic_time() {
        let (steady, here) = (Instant::now(), UNIX_EPOCH);
        let before = Clocks { server: 1_000_000_000, here, steady, doubt: 500 };
        let later = |server| Clocks { server, steady: steady + Duration::from_secs(3), ..before };
        for (server, expected) in
            [(1_003_000_000, 0), (1_063_000_000, 60_000_000), (1_000_000_000, -3_000_000)]
        {
            assert_eq!(step(&before, &later(server)), expected);
        }
        assert!(exceeds(-3_000_000, MAX_CLOCK_STEP_US, 1000) && !exceeds(100_500, MAX_CLOCK_STEP_US, 1000));
    }

    /// The measured maxima of the last three cases were 97.8, 30.3 and 9.8 s.
    #[test]
    fn the_prediction_fits_measurements() {
        for (keys, hz, effort, seconds) in
            [(0, 10, 1, 0.0), (20_000, 10, 1, 100.0), (20_000, 10, 10, 30.769), (20_000, 100, 1, 10.0)]
        {
            let predicted = worst_s(keys, hz, effort);
            assert!((predicted - seconds).abs() < 0.001, "{keys} {hz} {effort}: {predicted}");
        }
    }

    #[test]
    fn events_that_did_not_arrive_are_counted_apart_from_late_ones() {
        let began = Instant::now();
        let key = |number: u8| Bytes::from(vec![number]);
        let probes: Vec<_> = (0..100).map(|number| (key(number), began)).collect();
        let received = |number: u8| (key(number), began + Duration::from_secs(u64::from(number)));
        let lateness = ProbeLateness::of(&probes, &(0..50).map(received).collect());
        assert_eq!((lateness.late.len(), lateness.of, lateness.are_all_received()), (50, 100, false));
        let quantiles = [50, 99, 100].map(|percent| lateness.quantile(percent));
        assert_eq!(quantiles, [Some(24.0), Some(49.0), Some(49.0)]);
        assert_eq!(ProbeLateness::of(&probes, &HashMap::new()).quantile(50), None);
    }

    /// The estimated deadline, from the middle between request and answer, can be a little late.
    #[test]
    fn lateness_is_never_negative() {
        let due = Instant::now() + Duration::from_secs(1);
        let received = [(Bytes::from_static(b"a"), due - Duration::from_millis(1))].into();
        assert_eq!(ProbeLateness::of(&[(Bytes::from_static(b"a"), due)], &received).late, [0.0]);
    }
}
