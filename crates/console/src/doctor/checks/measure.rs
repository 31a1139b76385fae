//! How late expired keys are announced: some that nobody reads, beside some that are read just after their deadlines.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use keylapse_connection::{Value, cmd, pipe};
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::{Error, ErrorKind, Result};
use crate::inside::hearing::{Earshot, Voice};

use super::super::case::{Case, answered};
use super::super::codes;
use super::predicted::faster;

/// How many of each kind.
const PROBES: u32 = 200;
/// So many are written with one request: all of one have nearly the same moment.
const AT_ONCE: usize = 20;
/// After a deadline: in its own millisecond a key is still alive.
const MARGIN: Duration = Duration::from_millis(2);
/// How often a key is read until it is gone.
const READS: u32 = 5;

/// An event may come after the answer by so much, where it comes on another connection.
const ON_THE_WAY: Duration = Duration::from_millis(200);

/// A key, and when it is due.
type Probe = (Bytes, Instant);

/// Deadlines are spread over the first half of the time, so that each key has the other half to be found.
pub(super) async fn check(case: &mut Case, mut earshot: Earshot, window: Duration) -> Result<()> {
    let end = Instant::now() + window;
    let Some(plain) = write(case, "plain", window / 2).await? else { return Ok(()) };
    let Some(touched) = write(case, "touched", window / 2).await? else { return Ok(()) };
    let (voice, ours) = (earshot.voice(), case.patient.key(""));
    let over = async {
        let read = read_when_due(voice, &touched).await;
        sleep_until(end.max(Instant::now() + ON_THE_WAY)).await;
        read
    };
    let heard = listen(&mut earshot, &ours, over).await?;
    read_all(case, &plain).await?;
    report(case, &Lateness::of(&plain, &heard), &Lateness::of(&touched, &heard));
    Ok(())
}

/// None where the server refuses: why has been said by then.
async fn write(case: &Case, kind: &str, over: Duration) -> Result<Option<Vec<Probe>>> {
    let numbers: Vec<_> = (1..=PROBES).collect();
    let mut probes = Vec::new();
    for some in numbers.chunks(AT_ONCE) {
        let (mut commands, mut keys) = (pipe(), Vec::new());
        for number in some {
            let (key, life) = (case.patient.key(&format!("{kind}:{number}")), over * *number / PROBES);
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
    earshot: &mut Earshot,
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
async fn read_when_due(voice: Voice, probes: &[Probe]) -> Result<()> {
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
async fn read_all(case: &Case, probes: &[Probe]) -> Result<()> {
    let mut exists = cmd("EXISTS");
    probes.iter().for_each(|(key, _)| _ = exists.arg(&key[..]));
    case.ask("clearing up", &exists).await.map(drop)
}

/// Of one kind of keys.
#[derive(Debug, PartialEq)]
struct Lateness {
    /// In seconds, the least first.
    late: Vec<f64>,
    of: usize,
}

impl Lateness {
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

fn report(case: &mut Case, plain: &Lateness, touched: &Lateness) {
    let figures = &mut case.lateness;
    figures.plain_late_p50_s = plain.quantile(50);
    figures.plain_late_max_s = plain.quantile(100);
    (figures.plain_heard, figures.plain_probes) = (plain.late.len() as u64, plain.of as u64);
    figures.touched_late_p99_ms = touched.quantile(99).map(|seconds| seconds * 1000.0);
    (figures.touched_heard, figures.touched_probes) = (touched.late.len() as u64, touched.of as u64);
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
        case.say_with(&codes::PLAIN_UNHEARD, of_plain.clone(), &[("faster", faster)]);
    }
    if !touched.are_all_heard() {
        case.say(&codes::TOUCHED_UNHEARD, of_touched.clone());
    }
    case.say(&codes::MEASURED, format!("{of_plain}; {of_touched}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_heard_counts_as_such_and_not_as_late() {
        let began = Instant::now();
        let key = |number: u8| Bytes::from(vec![number]);
        let probes: Vec<_> = (0..100).map(|number| (key(number), began)).collect();
        let heard = |number: u8| (key(number), began + Duration::from_secs(u64::from(number)));
        let lateness = Lateness::of(&probes, &(0..50).map(heard).collect());
        assert_eq!((lateness.late.len(), lateness.of, lateness.are_all_heard()), (50, 100, false));
        let quantiles = [50, 99, 100].map(|percent| lateness.quantile(percent));
        assert_eq!(quantiles, [Some(24.0), Some(49.0), Some(49.0)]);
        assert_eq!(Lateness::of(&probes, &HashMap::new()).quantile(50), None);
    }

    /// The middle between question and answer may be a little late.
    #[test]
    fn nothing_is_heard_before_it_is_due() {
        let due = Instant::now() + Duration::from_secs(1);
        let heard = [(Bytes::from_static(b"a"), due - Duration::from_millis(1))].into();
        assert_eq!(Lateness::of(&[(Bytes::from_static(b"a"), due)], &heard).late, [0.0]);
    }
}
