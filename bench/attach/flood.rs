//! A flood: a million keys are due in one second, and a quarter of them were never enrolled.

use std::time::Duration;

use keylapse::{Key, NewArm, Schedule, Topic};
use keylapse_bench::Fault;
use tokio::time::{Instant, sleep};

use crate::listening::{MANAGED, now};
use crate::options::Options;
use crate::process;
use crate::role::Report;
use crate::scene::{POLL, Place};

/// Safe rates of enrolling and of writing keys, with which the lead is calculated.
const ENROLLED_PER_S: f64 = 15_000.0;
const WRITTEN_PER_S: f64 = 25_000.0;
const ARMED_AT_ONCE: usize = 20_000;

/// The runs of a key. A vector of them needs less memory than a map.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    runs: u32,
    early: bool,
}

/// The starts of handlers, and the times of notes.
#[derive(Debug, Default)]
struct Seen {
    starts: Vec<u64>,
    /// The number of the listener's notes; then the times of the first and the last.
    noted: u64,
    noting: Option<(u64, u64)>,
    enrolled: u64,
}

pub(crate) async fn play(options: &Options) -> Result<bool, Fault> {
    let managed = managed_rate(options).await?;
    let (place, keys) = (Place::open(&options.flood_flags).await?, options.flood_keys);
    let (late, early) = (options.unenrolled.min(keys), keys - options.unenrolled.min(keys));
    let writing = Duration::from_secs_f64(3.0 + f64::from(late) / WRITTEN_PER_S);
    let lead =
        options.lead.unwrap_or(Duration::from_secs_f64(10.0 + f64::from(keys) / ENROLLED_PER_S) + writing);
    // Deadlines are spread over one second, in another order than the writes.
    let first = now() / 1000 + lead.as_millis() as u64;
    let deadline = |key: u32| first + u64::from(key) * 7919 % 1000;
    place.fill(0..early, b"1", deadline)?;
    let mut listener = place.listener(0, true).await?;
    let (mut seen, mut fates) = (Seen::default(), vec![Fate::default(); keys as usize]);
    while seen.enrolled < u64::from(early) && now() / 1000 + (writing.as_millis() as u64) < first {
        sleep(POLL).await;
        seen.take(listener.reports(), &mut fates, deadline);
    }
    if seen.enrolled < u64::from(early) {
        println!("  ! {} of {early} keys were enrolled in time: give --lead", seen.enrolled);
    }
    let rss = process::rss_mb(listener.pid())?;
    place.fill(early..keys, b"1", deadline)?;
    if now() / 1000 >= first {
        return Err("the keys were due before all were written: give --lead".into());
    }
    let (mut last, mut ran) = (Instant::now(), 0);
    let wait = Duration::from_millis(first.saturating_sub(now() / 1000)) + options.patience;
    while last.elapsed() < wait && !(ran > 0 && last.elapsed() > options.patience) {
        sleep(POLL).await;
        seen.take(listener.reports(), &mut fates, deadline);
        if listener.has_ended()? {
            return Err("the listener has ended".into());
        }
        if seen.starts.len() > ran {
            (ran, last) = (seen.starts.len(), Instant::now());
        }
        let all_ran = fates.iter().all(|fate| fate.runs > 0);
        if all_ran && last.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
    let (peak, memory) = (process::peak_mb(listener.pid())?, place.memory().await?);
    seen.take(listener.end()?, &mut fates, deadline);
    let lost =
        |from: u32, to: u32| fates[from as usize..to as usize].iter().filter(|fate| fate.runs == 0).count();
    let (lost_enrolled, lost_unenrolled) = (lost(0, early), lost(early, keys));
    let twice: u64 = fates.iter().map(|fate| u64::from(fate.runs.saturating_sub(1))).sum();
    let handled = fates.iter().filter(|fate| fate.runs > 0).count();
    let fired_early = fates.iter().filter(|fate| fate.early).count();
    let (noting, after) = seen.rates();
    println!(
        "  listener: {rss:.1} MB before, at most {peak:.1} MB; the server has {:.1} MB at the end; handlers started \
         at {:.0} a second over all, and at {} when all was noted; {} keys were left in the database",
        memory / 1e6,
        seen.overall(),
        shown(after),
        place.ask::<u64>(&["DBSIZE"]).await?
    );
    println!(
        "scene=flood flags={} keys={keys} unenrolled={late} handled={handled} started_per_s={} managed_per_s={managed:.0} \
         ratio={} rss_mb={peak:.1} lost_enrolled={lost_enrolled} lost_unenrolled={lost_unenrolled} twice={twice} \
         early={fired_early}",
        options.flood_flags,
        shown(noting),
        noting.map_or_else(|| "none".to_owned(), |rate| format!("{:.2}", rate / managed)),
    );
    Ok(lost_enrolled as u64 + lost_unenrolled as u64 + twice + fired_early as u64 == 0)
}

impl Seen {
    fn take(&mut self, reports: Vec<Report>, fates: &mut [Fate], deadline: impl Fn(u32) -> u64) {
        for one in reports {
            match one {
                Report::Run { key, at, .. } => {
                    if let Some(fate) = fates.get_mut(key as usize) {
                        fate.runs += 1;
                        fate.early |= at < deadline(key) * 1000;
                    }
                    self.starts.push(at);
                }
                Report::Counted { at, enrolled, noted, .. } => {
                    self.enrolled = enrolled;
                    if noted > self.noted {
                        self.noted = noted;
                        self.noting = Some((self.noting.map_or(at, |(first, _)| first), at));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the starts a second, while notes were made and after the last note.
    fn rates(&self) -> (Option<f64>, Option<f64>) {
        let Some((from, to)) = self.noting else { return (None, None) };
        let of = |from: u64, to: u64| {
            let count = self.starts.iter().filter(|at| (from..to).contains(at)).count();
            (to > from).then(|| count as f64 * 1e6 / (to - from) as f64)
        };
        let last = self.starts.iter().max().copied().unwrap_or(to);
        (of(from, to), of(to, last))
    }

    fn overall(&self) -> f64 {
        let (first, last) = (self.starts.iter().min(), self.starts.iter().max());
        let span = last.unwrap_or(&0) - first.unwrap_or(&0);
        self.starts.len().saturating_sub(1) as f64 * 1e6 / span.max(1) as f64
    }
}

fn shown(rate: Option<f64>) -> String {
    rate.map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0}"))
}

/// Returns the rate of handlers of a managed topic whose timers are all overdue.
async fn managed_rate(options: &Options) -> Result<f64, Fault> {
    let (place, topic) = (Place::open("Ex").await?, Topic::<bytes::Bytes>::raw(MANAGED)?.marker_keys(false));
    let (schedule, due) = (Schedule::connect(place.server.url()).await?, std::time::SystemTime::now());
    let numbers: Vec<u32> = (0..options.managed).collect();
    for portion in numbers.chunks(ARMED_AT_ONCE) {
        let arms =
            portion.iter().map(|n| NewArm::new(Key(format!("app:managed:{n}")), due, bytes::Bytes::new()));
        let armed = schedule.arm_many(&topic, arms).await?;
        armed.into_iter().try_for_each(|one| one.map(drop))?;
    }
    let (mut seen, listener) = (Seen::default(), place.start_listener(0, true)?);
    let give_up = Instant::now() + options.patience;
    while seen.starts.len() < numbers.len() && Instant::now() < give_up {
        sleep(POLL).await;
        seen.take(listener.reports(), &mut [], |_| 0);
    }
    listener.end()?;
    if seen.starts.len() < numbers.len() {
        return Err("not all managed timers ran in time".into());
    }
    Ok(seen.overall())
}
