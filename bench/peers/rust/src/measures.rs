use std::{
    future::Future,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::offering::{from_tasks, offer_bulk, offer_from_tasks, offer_singly};
use crate::{Handler, Job, Peer, Result, Settings, now_ms, until};

/// A worker is done if it starts no handler for this long.
const MAX_QUIET: Duration = Duration::from_secs(15);
/// The least rates of offering, in jobs a millisecond: with the bulk call, and without.
const OFFERED_IN_BULK: usize = 20;
const OFFERED: usize = 2;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Jobs that run when the worker is killed, and the longest wait for their next attempts.
const KILLED: usize = 10;
const KILL_MAX_WAIT: Duration = Duration::from_secs(150);

pub(crate) async fn throughput<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    let handler = Handler::counting(settings.count);
    let (worker, left) = if P::LOSES_JOBS_WITHOUT_WORKER {
        let worker = start(&peer, settings.concurrency, &handler).await;
        let first = first_due(settings, OFFERED_IN_BULK);
        offer_bulk(&peer, jobs_within(settings, first, 200)).await?;
        (worker, left_until(first)?)
    } else {
        offer_bulk(&peer, jobs_within(settings, now_ms() - 1_000, 1_000)).await?;
        peer.prepare_backlog().await?;
        (start(&peer, settings.concurrency, &handler).await, Duration::ZERO)
    };
    finish(worker, &handler, left + MAX_QUIET).await?;

    let at = handler.starts().at;
    let (Some(first), Some(last)) = (at.iter().min(), at.iter().max()) else {
        return Err("nothing was handled".into());
    };
    let seconds = last.duration_since(*first).as_secs_f64();
    Ok(json!({ "handled": at.len(), "seconds": seconds, "per_s": rate(at.len() - 1, seconds) }))
}

pub(crate) async fn lateness<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    let handler = Handler::timing(settings.count);
    let worker = start(&peer, settings.concurrency, &handler).await;

    let first = first_due(settings, OFFERED);
    let jobs = Job::many(settings, |number| first + number as u64 * 1_000 / settings.rate);
    offer_from_tasks(&peer, jobs.into_iter().map(Job::with_due).collect()).await?;
    let all_due = left_until(first)? + Duration::from_millis(settings.count as u64 * 1_000 / settings.rate);
    finish(worker, &handler, all_due + MAX_QUIET).await?;

    let mut late = handler.starts().late_ms;
    if late.is_empty() {
        return Err("nothing was handled".into());
    }
    late.sort_by(f64::total_cmp);
    let early = late.iter().filter(|ms| **ms < 0.0).count();
    Ok(json!({
        "handled": late.len(),
        "early": early,
        "p50_ms": percentile(&late, 50),
        "p99_ms": percentile(&late, 99),
        "max_ms": percentile(&late, 100),
    }))
}

pub(crate) async fn arm<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    let mut round = 0;
    let mut jobs = || {
        let jobs = Job::many(settings, |_| now_ms() + HOUR_MS);
        round += settings.count;
        jobs.into_iter().map(|job| Job { number: job.number + round, ..job }).collect()
    };
    let single = timed(settings, offer_singly(&peer, jobs())).await?;
    let concurrent = timed(settings, offer_from_tasks(&peer, jobs())).await?;
    let bulk = if P::BULK == 0 { None } else { Some(timed(settings, offer_bulk(&peer, jobs())).await?) };
    Ok(json!({ "single_per_s": single, "concurrent_per_s": concurrent, "bulk_per_s": bulk }))
}

pub(crate) async fn arm_cancel<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    let jobs = Job::many(settings, |_| now_ms() + HOUR_MS);
    let withdrawing =
        from_tasks(&peer, jobs.into_iter(), |peer, job| async move { peer.offer_and_withdraw(job).await });
    Ok(json!({ "pairs_per_s": timed(settings, withdrawing).await? }))
}

pub(crate) async fn lives<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    let handler = Handler::counting(settings.count);
    let worker = start(&peer, settings.concurrency, &handler).await;
    let begun = Instant::now();
    // Jobs are created one by one: all of them would need much memory, and would be due before they are offered.
    let payload = settings.payload.clone();
    let jobs = (0..settings.count).map(move |number| Job { number, due: now_ms(), payload: payload.clone() });
    let offering = from_tasks(&peer, jobs, |peer, job| async move { peer.offer(job).await });
    // A worker that ends by itself fails the run immediately, not after all jobs have been offered.
    let handling = finish(worker, &handler, MAX_QUIET);
    tokio::try_join!(offering, handling)?;
    let at = handler.starts().at;
    let Some(last) = at.iter().max() else {
        return Err("nothing was handled".into());
    };
    // A handler does nothing, so its start is its end.
    let seconds = last.duration_since(begun).as_secs_f64();
    Ok(json!({ "handled": at.len(), "lives_per_s": rate(at.len(), seconds), "seconds": seconds }))
}

pub(crate) async fn bytes<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    offer_bulk(&peer, Job::many(settings, |_| now_ms() + DAY_MS)).await?;
    Ok(json!({ "armed": settings.count }))
}

pub(crate) async fn idle<P: Peer>(settings: &Settings) -> Result<Value> {
    let peer = P::connect(settings).await?;
    let handler = Handler::counting(usize::MAX);
    let worker = start(&peer, settings.concurrency, &handler).await;
    finish(worker, &handler, Duration::from_secs(settings.count as u64)).await?;
    Ok(json!({ "seconds": settings.count }))
}

pub(crate) async fn kill<P: Peer>(settings: &Settings) -> Result<Value> {
    let settings = &Settings { count: KILLED, ..settings.clone() };
    let peer = P::connect(settings).await?;
    let handler = Handler::never_ending(KILLED);
    let concurrency = settings.concurrency.max(KILLED);
    let worker = if P::LOSES_JOBS_WITHOUT_WORKER {
        let worker = start(&peer, concurrency, &handler).await;
        offer_singly(&peer, jobs_within(settings, now_ms() + 500, 200)).await?;
        worker
    } else {
        offer_singly(&peer, jobs_within(settings, now_ms() - 200, 200)).await?;
        start(&peer, concurrency, &handler).await
    };
    handler.all_started(MAX_QUIET).await;
    let started = handler.starts().at.len();
    if started < KILLED {
        return Err(format!("only {started} handlers have started").into());
    }
    println!("{}", json!({ "started": started }));
    worker.await??;
    Err("the worker ended by itself".into())
}

pub(crate) async fn kill_again<P: Peer>(settings: &Settings) -> Result<Value> {
    let begun = Instant::now();
    let peer = P::connect(settings).await?;
    let handler = Handler::counting(KILLED);
    let worker = start(&peer, settings.concurrency.max(KILLED), &handler).await;
    let all = finish(worker, &handler, KILL_MAX_WAIT);
    tokio::time::timeout(KILL_MAX_WAIT, all).await.unwrap_or(Ok(()))?;

    let at = handler.starts().at;
    let seconds: Vec<_> = at.iter().map(|at| at.duration_since(begun).as_secs_f64()).collect();
    Ok(json!({ "again": at.len(), "seconds": seconds }))
}

/// Creates jobs that are due at even distances from `from` on.
fn jobs_within(settings: &Settings, from: u64, ms: u64) -> Vec<Job> {
    Job::many(settings, |number| from + number as u64 * ms / settings.count as u64)
}

/// Returns the due time of the first job, far enough ahead to offer all jobs before it.
fn first_due(settings: &Settings, offered_each_ms: usize) -> u64 {
    now_ms() + 2_000 + (settings.count / offered_each_ms) as u64
}

/// Returns the time until the first job is due. Fails if it has passed, because all jobs must be offered before.
fn left_until(first: u64) -> Result<Duration> {
    let left = until(first);
    if left.is_zero() {
        return Err("offering took longer than was left until the first job was due".into());
    }
    Ok(left)
}

/// Starts a worker, and waits 200 ms for it to connect.
async fn start<P: Peer>(peer: &P, concurrency: usize, handler: &Handler) -> JoinHandle<Result<()>> {
    let (peer, handler) = (peer.clone(), handler.clone());
    let worker = tokio::spawn(async move { peer.work(concurrency, handler).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    worker
}

/// Stops the worker when all jobs have started or no more start. Fails if the worker ended before.
async fn finish(mut worker: JoinHandle<Result<()>>, handler: &Handler, max_quiet: Duration) -> Result<()> {
    tokio::select! {
        () = handler.all_started(max_quiet) => {
            worker.abort();
            Ok(())
        }
        ended = &mut worker => {
            ended??;
            Err("the worker ended by itself".into())
        }
    }
}

/// Returns the rate of offering, in jobs a second.
async fn timed(settings: &Settings, offering: impl Future<Output = Result<()>>) -> Result<f64> {
    let begun = Instant::now();
    offering.await?;
    Ok(rate(settings.count, begun.elapsed().as_secs_f64()))
}

fn rate(count: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Returns a percentile by nearest rank; `sorted` is not empty.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.max(1) - 1]
}
