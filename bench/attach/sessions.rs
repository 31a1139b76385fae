//! Sessions, whose TTL each request extends. Few end, and their handlers must start immediately.

use std::collections::HashMap;
use std::time::Duration;

use keylapse_bench::Fault;
use tokio::time::{Instant, sleep};

use crate::judge::{Runs, percentile};
use crate::listening::now;
use crate::options::{Crowd, Options};
use crate::process;
use crate::refreshing::Refreshing;
use crate::role::{Report, Role, Worker};
use crate::scene::{POLL, Place};

/// The additional TTL, in seconds, of sessions at the start: as long as loading them takes.
const LOADING: u64 = 15;
/// The time after loading in which the listener catches up.
const SETTLING: Duration = Duration::from_secs(1);

/// The observations of one run of the writer.
#[derive(Debug, Default)]
struct Seen {
    /// Sessions that ended: the deadline in µs, and whether they were logged out.
    left: HashMap<u32, (u64, bool)>,
    written: Option<(u64, f64, u64)>,
    /// The server's share of a core during the writes.
    core: f64,
    /// The server's memory at their end.
    memory: f64,
    runs: Runs,
    /// The listener's memory, each tenth of a second during the writes.
    rss: Vec<f64>,
    peak: f64,
    /// Changes that the listener dropped because its queue was full, and gaps in its events.
    dropped: u64,
    gaps: u64,
    /// The reason if the run was cut short.
    cut: Option<String>,
}

/// Plays the scene without a listener, then with one. Returns whether nothing was lost or fired early.
pub(crate) async fn play(options: &Options, crowd: &Crowd, flags: &str) -> Result<bool, Fault> {
    let alone = write(options, crowd, flags, options.alone, false).await?;
    let seen = write(options, crowd, flags, options.seconds, true).await?;
    Ok(Verdict::of(&seen).print(crowd, flags, &alone, &seen))
}

async fn write(
    options: &Options,
    crowd: &Crowd,
    flags: &str,
    time: Duration,
    with_listener: bool,
) -> Result<Seen, Fault> {
    let place = Place::open(flags).await?;
    let deadline = |_| now() / 1000 + (options.ttl + LOADING) * 1000;
    place.fill(0..crowd.keys, &vec![b'v'; crowd.value_bytes], deadline)?;
    let of = |percent: f64| (f64::from(crowd.keys) * percent / 100.0) as u32;
    let mut writer = Worker::start(&Role::Refreshing(Refreshing {
        port: place.port(),
        keys: crowd.keys,
        rate: crowd.rate,
        seconds: time.as_secs_f64(),
        ttl: options.ttl,
        shortened: of(options.shortened),
        left: of(options.left),
    }))?;
    // The writer starts before the listener, and has refreshed each session.
    sleep(Duration::from_secs_f64(f64::from(crowd.keys) / crowd.rate) + SETTLING).await;
    let mut listener =
        if with_listener { Some(place.listener(crowd.value_bytes, true).await?) } else { None };
    sleep(SETTLING).await;
    writer.count()?;
    let (began, cpu, mut seen) = (Instant::now(), place.cpu()?, Seen::default());
    while seen.written.is_none() {
        sleep(POLL).await;
        let ended = writer.has_ended()?;
        seen.take(writer.reports(), &mut listener)?;
        if ended && seen.written.is_none() {
            return Err("the writer ended without a report of its writes".into());
        }
        if seen.cut.is_none() && seen.rss.last() > Some(&options.rss_limit_mb) {
            seen.cut = Some(format!(
                "the listener passed {} MB after {:.0} s",
                options.rss_limit_mb,
                began.elapsed().as_secs_f64()
            ));
            writer.ask_to_end();
        }
        seen.guard(&mut listener, options.rss_limit_mb * 2.0);
    }
    seen.core = (place.cpu()? - cpu) / began.elapsed().as_secs_f64();
    seen.memory = place.memory().await?;
    let rss_while_written = seen.rss.len();
    let give_up = Instant::now() + options.patience;
    while listener.is_some() && seen.waits() && Instant::now() < give_up {
        sleep(POLL).await;
        seen.take(writer.reports(), &mut listener)?;
        seen.guard(&mut listener, options.rss_limit_mb * 2.0);
    }
    seen.rss.truncate(rss_while_written);
    // A wrong second run, or a run for a session that lives, has time to happen.
    if listener.is_some() {
        sleep(SETTLING).await;
    }
    let rest = writer.end()?;
    seen.take(rest, &mut listener)?;
    if let Some(listener) = listener {
        seen.runs.take(&listener.end()?);
    }
    Ok(seen)
}

impl Seen {
    fn take(&mut self, reports: Vec<Report>, listener: &mut Option<Worker>) -> Result<(), Fault> {
        for one in reports {
            match one {
                Report::Left { key, deadline, shortened } => {
                    self.left.insert(key, (deadline, shortened));
                }
                Report::Written { commands, seconds, gone } => self.written = Some((commands, seconds, gone)),
                _ => {}
            }
        }
        if let Some(listener) = listener {
            let reports = listener.reports();
            if let Some(Report::Counted { dropped, gaps, .. }) =
                reports.iter().rfind(|one| matches!(one, Report::Counted { .. }))
            {
                (self.dropped, self.gaps) = (*dropped, *gaps);
            }
            self.runs.take(&reports);
            if listener.has_ended()? {
                return Err("the listener has ended".into());
            }
            self.rss.push(process::rss_mb(listener.pid())?);
            self.peak = process::peak_mb(listener.pid())?;
        }
        Ok(())
    }

    /// Kills a listener that would take the machine's memory.
    fn guard(&mut self, listener: &mut Option<Worker>, limit: f64) {
        if self.rss.last() > Some(&limit) {
            *listener = None;
            self.cut = Some(format!("the listener passed {limit} MB and was killed"));
        }
    }

    /// Returns whether a session that has left still needs a handler.
    fn waits(&self) -> bool {
        self.left.keys().any(|&key| self.runs.of(key).is_empty())
    }
}

#[derive(Debug, Default)]
struct Verdict {
    /// Lateness in µs, of sessions that were logged out, and of those that were left alone.
    late: [Vec<u64>; 2],
    values_missing: u64,
    lost: u64,
    early: u64,
    twice: u64,
}

impl Verdict {
    fn of(seen: &Seen) -> Self {
        let mut verdict = Self::default();
        for (&key, &(deadline, shortened)) in &seen.left {
            let runs = seen.runs.of(key);
            verdict.early += runs.iter().filter(|(at, _)| *at < deadline).count() as u64;
            verdict.twice += runs.len().saturating_sub(1) as u64;
            match runs.first() {
                Some((at, value)) => {
                    verdict.values_missing += u64::from(!value);
                    verdict.late[usize::from(!shortened)].push(at.saturating_sub(deadline));
                }
                None => verdict.lost += 1,
            }
        }
        // A handler ran for a session that lives.
        verdict.early += seen.runs.keys().filter(|key| !seen.left.contains_key(key)).count() as u64;
        verdict
    }

    fn print(mut self, crowd: &Crowd, flags: &str, alone: &Seen, seen: &Seen) -> bool {
        let mut all = self.late.concat();
        let [shortened, left] = &mut self.late;
        for (name, late) in [("logged out", shortened), ("left alone", left)] {
            println!(
                "  {} {name}: p50 {} ms, p99 {} ms, latest {} ms",
                late.len(),
                percentile(late, 50),
                percentile(late, 99),
                percentile(late, 100)
            );
        }
        let (commands, seconds, gone) = seen.written.unwrap_or_default();
        let (rss, half) = (seen.rss.last().copied().unwrap_or(0.0), seen.rss.get(seen.rss.len() / 2));
        println!(
            "  listener: {:.1} MB at the start, {:.1} MB at half time, {rss:.1} MB at the end, at most {:.1} MB; \
             {} ran twice, {gone} sessions gone too soon; {} changes found no room, {} gaps",
            seen.rss.first().unwrap_or(&0.0),
            half.unwrap_or(&0.0),
            seen.peak,
            self.twice,
            seen.dropped,
            seen.gaps
        );
        if let Some(why) = &seen.cut {
            println!("  ! cut short: {why}");
        }
        println!(
            "scene=sessions flags={flags} keys={} value_bytes={} refreshes_per_s={:.0} rss_mb={rss:.1} \
             leavers_p50_ms={} leavers_p99_ms={} values_missing={} server_core={:.3} flags_core={:.3} \
             server_mb_extra={:.1} lost={} early={}",
            crowd.keys,
            crowd.value_bytes,
            commands as f64 / seconds,
            percentile(&mut all, 50),
            percentile(&mut all, 99),
            self.values_missing,
            seen.core,
            alone.core,
            (seen.memory - alone.memory) / 1e6,
            self.lost,
            self.early
        );
        self.lost + self.early + gone == 0
    }
}
