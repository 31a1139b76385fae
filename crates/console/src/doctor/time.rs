//! The server's clock, and how late it announces expired keys: as its settings predict, and as it is measured.

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

/// Two clocks at one moment, give or take the time of the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// The server's, in microseconds since 1970.
    server: u64,
    /// This machine's, in the middle between question and answer.
    here: SystemTime,
    /// The one that never jumps.
    steady: Instant,
    /// By how much they may be apart for no other reason than the way, in microseconds.
    doubt: u64,
}

/// Microseconds by which two machines' clocks may differ.
const MAX_CLOCK_DIFFERENCE_US: i64 = 2_000_000;
/// By how much it may run ahead of, or behind, one that never jumps: clocks are slewed, and machines are busy.
const MAX_CLOCK_STEP_US: i64 = 100_000;

/// Reads both; none where TIME is refused, which the rights say.
pub(super) async fn clocks(case: &ServerExamination) -> Result<Option<Clocks>> {
    let asked = Instant::now();
    let said = case.ask("reading the server's clock", &cmd("TIME")).await?;
    let way = asked.elapsed();
    let time = said.ok().and_then(|said| keylapse_connection::from_redis_value::<(u64, u64)>(said).ok());
    Ok(time.map(|(seconds, micros)| Clocks {
        server: seconds.saturating_mul(1_000_000).saturating_add(micros),
        here: SystemTime::now() - way / 2,
        steady: asked + way / 2,
        doubt: micros_of(way),
    }))
}

/// Compares with what was read when the examination began.
pub(super) async fn clock(case: &mut ServerExamination) -> Result<()> {
    let Some(before) = case.clocks else { return Ok(()) };
    let Some(after) = clocks(case).await? else { return Ok(()) };
    let step = step(&before, &after);
    if exceeds(step, MAX_CLOCK_STEP_US, before.doubt + after.doubt) {
        say_of_clock(case, &codes::CLOCK_STEPS, format!("by {} ms while it was looked at", step / 1000));
        return Ok(());
    }
    let apart =
        signed(after.server) - signed(micros_of(after.here.duration_since(UNIX_EPOCH).unwrap_or_default()));
    if exceeds(apart, MAX_CLOCK_DIFFERENCE_US, after.doubt) {
        let way = if apart > 0 { "ahead of" } else { "behind" };
        say_of_clock(
            case,
            &codes::CLOCKS_DIFFER,
            format!("it is {} ms {way} this machine's", apart.abs() / 1000),
        );
    }
    Ok(())
}

/// A service sees to its own clock, so that the one to set is this machine's.
fn say_of_clock(case: &mut ServerExamination, code: &Code, observed: String) {
    let site = Site::of(&case.address().endpoint(), &case.info);
    let prefix = if case.service().is_some() { String::new() } else { site.prefix() };
    case.add_finding_with(code, observed, &[("where", &prefix)]);
}

/// What the server's clock has gone more than time has.
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

// How late keys come that nobody reads, by the law of the server's expiry: in each of its `hz` cycles a second it looks at
// twenty keys with a time to live, five more for each step of `active-expire-effort`, and goes on at once only where many
// of them have expired. So it takes that long to come round to a key.
const DEFAULT_HZ: u64 = 10;
const DEFAULT_EFFORT: u64 = 1;
/// Seconds. A second is what a server without other keys takes at most.
const MAX_PREDICTED_LATENESS_SECS: f64 = 2.0;

pub(super) fn predicted(case: &mut ServerExamination) {
    if !case.takes_writes() || case.info.is_empty() {
        return;
    }
    let (hz, effort) = (case.number("hz"), case.number("active-expire-effort"));
    let keys = case.info.volatile_keys(case.db);
    let worst = worst_s(keys, hz.unwrap_or(DEFAULT_HZ), effort.unwrap_or(DEFAULT_EFFORT));
    case.lateness.plain_late_predicted_max_s = Some(worst);
    let known = if hz.is_some() { "" } else { ", as is usual: the settings cannot be read" };
    let observed = format!(
        "{worst:.1} s at worst: {} with a time to live, hz {}, active-expire-effort {}{known}",
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

/// What has the server look at more keys, at the price of its processor's time: the setting that helps most first.
fn faster(case: &ServerExamination) -> &'static str {
    let number = |name, usual| case.number(name).unwrap_or(usual);
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

/// How many of each kind.
const PROBES: u32 = 200;
/// So many are written with one request: all of one have nearly the same moment.
const PROBES_PER_REQUEST: usize = 20;
/// After a deadline: in its own millisecond a key is still alive.
const MARGIN: Duration = Duration::from_millis(2);
/// How often a key is read until it is gone.
const READS: u32 = 5;
/// An event may come after the answer by so much, where it comes on another connection.
const EVENT_DELIVERY_TIME: Duration = Duration::from_millis(200);

/// A key, and when it is due.
type Probe = (Bytes, Instant);

/// Deadlines are spread over the first half of the time, so that each key has the other half to be found.
pub(super) async fn measure(
    case: &mut ServerExamination,
    mut earshot: ExpirySubscription,
    window: Duration,
) -> Result<()> {
    let end = Instant::now() + window;
    let Some(plain) = write(case, "plain", window / 2).await? else { return Ok(()) };
    let Some(touched) = write(case, "touched", window / 2).await? else { return Ok(()) };
    let (voice, ours) = (earshot.connection(), case.key(""));
    let over = async {
        let read = read_when_due(voice, &touched).await;
        sleep_until(end.max(Instant::now() + EVENT_DELIVERY_TIME)).await;
        read
    };
    let heard = listen(&mut earshot, &ours, over).await?;
    read_all(case, &plain).await?;
    report(case, &ProbeLateness::of(&plain, &heard), &ProbeLateness::of(&touched, &heard));
    Ok(())
}

/// None where the server refuses: why has been said by then.
async fn write(case: &ServerExamination, kind: &str, over: Duration) -> Result<Option<Vec<Probe>>> {
    let numbers: Vec<_> = (1..=PROBES).collect();
    let mut probes = Vec::new();
    for some in numbers.chunks(PROBES_PER_REQUEST) {
        let (mut commands, mut keys) = (pipe(), Vec::new());
        for number in some {
            let (key, life) = (case.key(&format!("{kind}:{number}")), over * *number / PROBES);
            let life = life.max(Duration::from_millis(1));
            commands.cmd("SET").arg(&key).arg("").arg("PX").arg(life.as_millis() as u64); // half a window
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

/// When each of our keys was heard, until it is over.
async fn listen(
    earshot: &mut ExpirySubscription,
    ours: &str,
    over: impl Future<Output = Result<()>>,
) -> Result<HashMap<Bytes, Instant>> {
    let (mut heard, mut over) = (HashMap::new(), pin!(over));
    loop {
        let key = tokio::select! {
            biased;
            key = earshot.expired() => key,
            read = &mut over => return read.map(|()| heard),
        };
        let ended =
            || Error::new(ErrorKind::Unreachable, "the subscription ended while lateness was measured");
        let key = key.ok_or_else(ended)?;
        if key.starts_with(ours.as_bytes()) {
            heard.entry(key).or_insert_with(Instant::now);
        }
    }
}

/// As keylapse does with its own keys.
async fn read_when_due(voice: SubscribedConnection, probes: &[Probe]) -> Result<()> {
    for (key, due) in probes {
        sleep_until(*due + MARGIN).await;
        for _ in 0..READS {
            let answer = voice.ask("reading a key that is due", cmd("EXISTS").arg(&key[..])).await;
            match answered(answer)? {
                Ok(Value::Int(1)) => sleep(MARGIN).await,
                Ok(_) | Err(_) => break,
            }
        }
    }
    Ok(())
}

/// What the server has not come across is gone by that.
async fn read_all(case: &ServerExamination, probes: &[Probe]) -> Result<()> {
    let mut exists = cmd("EXISTS");
    probes.iter().for_each(|(key, _)| _ = exists.arg(&key[..]));
    case.ask("clearing up", &exists).await.map(drop)
}

/// Of one kind of keys.
#[derive(Debug, PartialEq)]
struct ProbeLateness {
    /// In seconds, the least first.
    late: Vec<f64>,
    of: usize,
}

impl ProbeLateness {
    fn of(probes: &[Probe], heard: &HashMap<Bytes, Instant>) -> Self {
        let late = |(key, due): &Probe| Some(heard.get(key)?.saturating_duration_since(*due).as_secs_f64());
        let mut late: Vec<_> = probes.iter().filter_map(late).collect();
        late.sort_by(f64::total_cmp);
        Self { late, of: probes.len() }
    }

    /// So many in a hundred of those that were heard are no later.
    fn quantile(&self, percent: usize) -> Option<f64> {
        let place = (self.late.len() * percent).div_ceil(100);
        self.late.get(place.saturating_sub(1)).copied()
    }

    fn are_all_heard(&self) -> bool {
        self.late.len() == self.of
    }
}

fn report(case: &mut ServerExamination, plain: &ProbeLateness, touched: &ProbeLateness) {
    let figures = &mut case.lateness;
    figures.plain_late_p50_s = plain.quantile(50);
    figures.plain_late_max_s = plain.quantile(100);
    (figures.plain_received, figures.plain_probes) = (plain.late.len() as u64, plain.of as u64);
    figures.checked_late_p99_ms = touched.quantile(99).map(|seconds| seconds * 1000.0);
    (figures.checked_received, figures.checked_probes) = (touched.late.len() as u64, touched.of as u64);
    let shown =
        |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"));
    let of_plain = format!(
        "{} of {} that nobody read were heard, half of these within {}, the last {} late",
        plain.late.len(),
        plain.of,
        shown(plain.quantile(50)),
        shown(plain.quantile(100))
    );
    let of_touched = format!(
        "{} of {} that were read were heard, 99 in 100 within {}",
        touched.late.len(),
        touched.of,
        shown(touched.quantile(99))
    );
    if !plain.are_all_heard() {
        let faster = faster(case);
        case.add_finding_with(&codes::PLAIN_NOT_RECEIVED, of_plain.clone(), &[("faster", faster)]);
    }
    if !touched.are_all_heard() {
        case.add_finding(&codes::CHECKED_NOT_RECEIVED, of_touched.clone());
    }
    case.add_finding(&codes::MEASURED, format!("{of_plain}; {of_touched}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_what_time_does_not_explain() {
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

    /// Beside what was measured on four servers: 97.8, 30.3 and 9.8 s at worst.
    #[test]
    fn the_law_is_the_one_that_was_measured() {
        for (keys, hz, effort, seconds) in
            [(0, 10, 1, 0.0), (20_000, 10, 1, 100.0), (20_000, 10, 10, 30.769), (20_000, 100, 1, 10.0)]
        {
            let predicted = worst_s(keys, hz, effort);
            assert!((predicted - seconds).abs() < 0.001, "{keys} {hz} {effort}: {predicted}");
        }
    }

    #[test]
    fn what_was_not_heard_counts_as_such_and_not_as_late() {
        let began = Instant::now();
        let key = |number: u8| Bytes::from(vec![number]);
        let probes: Vec<_> = (0..100).map(|number| (key(number), began)).collect();
        let heard = |number: u8| (key(number), began + Duration::from_secs(u64::from(number)));
        let lateness = ProbeLateness::of(&probes, &(0..50).map(heard).collect());
        assert_eq!((lateness.late.len(), lateness.of, lateness.are_all_heard()), (50, 100, false));
        let quantiles = [50, 99, 100].map(|percent| lateness.quantile(percent));
        assert_eq!(quantiles, [Some(24.0), Some(49.0), Some(49.0)]);
        assert_eq!(ProbeLateness::of(&probes, &HashMap::new()).quantile(50), None);
    }

    /// The middle between question and answer may be a little late.
    #[test]
    fn nothing_is_heard_before_it_is_due() {
        let due = Instant::now() + Duration::from_secs(1);
        let heard = [(Bytes::from_static(b"a"), due - Duration::from_millis(1))].into();
        assert_eq!(ProbeLateness::of(&[(Bytes::from_static(b"a"), due)], &heard).late, [0.0]);
    }
}
