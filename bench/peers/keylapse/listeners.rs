//! Several listeners, each a process, that share the jobs of one topic.

use std::process::Stdio;
use std::time::Duration;

use keylapse::Schedule;
use keylapse_wire::Store;
use keylapse_wire::names::PartitionNames;
use serde::Deserialize;
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::lateness::{due, report, whole_ms};
use crate::orders::Orders;
use crate::runs::micros;
use crate::{Fault, Outcome, System, jobs};

/// The time in which the processes connect, and elect a leader.
const SETTLING: Duration = Duration::from_secs(2);

/// The output of one listener.
#[derive(Debug, Deserialize)]
struct Printed {
    starts: Vec<(usize, u64)>,
    claims: u64,
    empty: u64,
}

/// `run listeners`: at a rate, or with all jobs overdue if the rate is zero.
pub(crate) async fn listeners(orders: &Orders, system: System) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    let saturated = orders.rate == 0.0;
    if saturated {
        schedule.pause(&topic, "all jobs are to start together").await?;
        jobs::offer_overdue(&schedule, &topic, orders).await?;
    }
    let processes = (0..orders.listeners).map(|_| start(system)).collect::<Result<Vec<_>, _>>()?;
    sleep(SETTLING).await;
    let mut steady = None;
    if saturated {
        schedule.resume(&topic).await?;
    } else {
        let (first, rate) = (whole_ms(Duration::from_secs(1)), orders.rate()?);
        jobs::offer(&schedule, &topic, orders, &jobs::numbers(orders), |n| due(first, rate, n)).await?;
        steady = Some((first, rate));
    }
    nothing_left(orders, topic.name()).await?;
    let (mut starts, mut claims, mut empty, mut busiest) = (Vec::new(), 0, 0, 0);
    for process in processes {
        let one = end(process).await?;
        busiest = busiest.max(one.starts.len());
        starts.extend(one.starts);
        claims += one.claims;
        empty += one.empty;
    }
    let handled = starts.len();
    let mut printed = match steady {
        Some((first, rate)) => report(starts, |n| micros(due(first, rate, n))),
        None => {
            let (first, last) =
                (starts.iter().map(|(_, at)| at).min(), starts.iter().map(|(_, at)| at).max());
            let seconds = (last.copied().unwrap_or(0) - first.copied().unwrap_or(0)) as f64 / 1e6;
            json!({ "handled": handled, "per_s": handled.saturating_sub(1) as f64 / seconds })
        }
    };
    printed["empty_percent"] = (100.0 * empty as f64 / claims.max(1) as f64).into();
    printed["claims_per_job"] = (claims as f64 / handled.max(1) as f64).into();
    printed["busiest_percent"] = (100.0 * busiest as f64 / handled.max(1) as f64).into();
    Ok(printed)
}

fn start(system: System) -> Result<Child, Fault> {
    let name = if system == System::Keylapse { "keylapse" } else { "keylapse-no-markers" };
    let mut command = Command::new(std::env::current_exe()?);
    Ok(command
        .args([name, "listen"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}

async fn end(mut process: Child) -> Result<Printed, Fault> {
    drop(process.stdin.take());
    let output = process.wait_with_output().await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Waits until no timer of the topic is left.
async fn nothing_left(orders: &Orders, topic: &str) -> Result<(), Fault> {
    let (store, at) = (Store::at(&orders.url)?, [PartitionNames::new("keylapse", topic, 0, 1, false)]);
    loop {
        let heads = store.peek(&at).await?.1;
        if heads.iter().all(|heads| heads.due.is_none() && heads.quarantine.is_none()) {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
}
