//! One run of one case on one system, on a server of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use crate::{Case, Fault, Run, Server, System, Variable};

/// What one run gave: figures by name.
pub type Figures = BTreeMap<String, f64>;

/// What came of one run.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Figures.
    Figures(Figures),
    /// The system does not have the measure.
    HasNot,
    /// It failed: why.
    Failed(String),
}

impl Made {
    /// With one figure more: what the harness has counted, for each of what the system has.
    fn with_share(mut self, name: &str, counted: u64, each: &str) -> Self {
        if let Self::Figures(figures) = &mut self {
            let each = figures.get(each).copied().unwrap_or(0.0);
            figures.insert(name.to_owned(), counted as f64 / each);
        }
        self
    }
}

/// Runs a case on a system.
///
/// # Errors
/// If there is no server, or the system cannot be started at all.
pub async fn make(case: &Case, system: &System) -> Result<Made, Fault> {
    let server = Server::start().await?;
    server.fill(case.foreign()).await;
    let mut environment: Vec<_> = case.environment().collect();
    environment.push(("BENCH_URL".to_owned(), server.url()));
    match case.measure {
        "bytes" => bytes(case, system, &server, &environment).await,
        "idle" => idle(case, system, &server, &environment).await,
        "requests" => requests(case, system, &server, &environment).await,
        "kill" => kill(case, system, &environment).await,
        measure => Ok(read(system.measure(measure, &environment, case.limit).await?)),
    }
}

/// The numbers among what was printed.
fn read(run: Run) -> Made {
    match run {
        Run::Printed(Value::Object(printed)) => Made::Figures(
            printed.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect(),
        ),
        Run::Printed(other) => Made::Failed(format!("it printed {other}")),
        Run::HasNot => Made::HasNot,
        Run::Failed(why) => Made::Failed(why),
    }
}

/// The server's memory, before and after.
async fn bytes(case: &Case, system: &System, server: &Server, with: &[Variable]) -> Result<Made, Fault> {
    let before = server.memory().await?;
    let made = read(system.measure(case.measure, with, case.limit).await?);
    // The buffers of the connection that has ended are given back a moment later.
    sleep(Duration::from_millis(300)).await;
    let after = server.memory().await?;
    Ok(made.with_share("bytes", after.saturating_sub(before), "armed"))
}

/// How often an idle worker is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What had been sent and executed at a moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    requests: u64,
    commands: u64,
}

/// What is sent to the server, and what it executes, while the worker is idle. Its start and its end are left out: what
/// counts lies between the last 75 and the last 10 hundredths of the time asked for.
async fn idle(case: &Case, system: &System, server: &Server, with: &[Variable]) -> Result<Made, Fault> {
    let line = server.line().await;
    let url = [("BENCH_URL".to_owned(), line.url())];
    let environment: Vec<_> =
        with.iter().filter(|(name, _)| name != "BENCH_URL").chain(&url).cloned().collect();
    let mut looks: Vec<Look> = Vec::new();
    let watch = async {
        let mut counter = server.counter().await;
        loop {
            let commands = counter.commands().await?;
            looks.push(Look { at: Instant::now(), requests: line.requests(), commands });
            sleep(LOOK).await;
        }
    };
    let made = tokio::select! {
        made = system.measure(case.measure, &environment, case.limit) => made?,
        fault = watch => return fault,
    };
    let (ended, asked) = (Instant::now(), Duration::from_secs_f64(case.number("count")));
    let mut made = read(made);
    if let Made::Figures(figures) = &mut made {
        let [requests, commands] = per_s(&looks, ended, asked)?;
        figures.insert("requests_per_s".to_owned(), requests);
        figures.insert("commands_per_s".to_owned(), commands);
    }
    Ok(made)
}

/// What a worker sends to the server for each job, from its start to its end. It is told of the line that is counted, and
/// offers the jobs by another.
async fn requests(case: &Case, system: &System, server: &Server, with: &[Variable]) -> Result<Made, Fault> {
    let line = server.line().await;
    let mut environment = with.to_vec();
    environment.push(("BENCH_LINE".to_owned(), line.url()));
    let made = read(system.measure(case.measure, &environment, case.limit).await?);
    Ok(made.with_share("requests_per_job", line.requests(), "handled"))
}

/// Requests and commands.
fn per_s(looks: &[Look], ended: Instant, asked: Duration) -> Result<[f64; 2], Fault> {
    let within = |look: &&Look| {
        let left = ended - look.at;
        left <= asked.mul_f64(0.75) && left >= asked.mul_f64(0.1)
    };
    let counted: Vec<_> = looks.iter().filter(within).collect();
    let [from, .., to] = counted[..] else {
        return Err("it was idle for too short a time to be looked at".into());
    };
    let seconds = (to.at - from.at).as_secs_f64();
    Ok([to.requests - from.requests, to.commands - from.commands].map(|count| count as f64 / seconds))
}

/// Kills a worker in the middle of ten handlers, and starts another.
async fn kill(case: &Case, system: &System, environment: &[Variable]) -> Result<Made, Fault> {
    match read(system.kill_after_a_line("kill", environment, Duration::from_secs(60)).await?) {
        Made::Figures(_) => {}
        other => return Ok(other),
    }
    let run = system.measure("kill_again", environment, case.limit).await?;
    let last = match &run {
        Run::Printed(printed) => printed["seconds"]
            .as_array()
            .and_then(|seconds| seconds.iter().filter_map(Value::as_f64).max_by(f64::total_cmp)),
        _ => None,
    };
    let mut made = read(run);
    if let Made::Figures(figures) = &mut made {
        figures.extend(last.map(|last| ("last_again_s".to_owned(), last)));
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_idle_time_neither_start_nor_end_counts() {
        let (start, asked) = (Instant::now(), Duration::from_secs(10));
        // A thousand commands at the start and the end, two a second between, and half as many requests.
        let looks: Vec<_> = (0..=120)
            .map(|look: u32| {
                let ends = if look < 25 { 0 } else { 1000 } + if look > 115 { 1000 } else { 0 };
                let requests = ends + u64::from(look / 10);
                Look { at: start + LOOK * look, requests, commands: ends + u64::from(look / 5) }
            })
            .collect();
        let [requests, commands] = per_s(&looks, start + Duration::from_secs(12), asked).unwrap();
        assert!((requests - 1.0).abs() < 0.1 && (commands - 2.0).abs() < 0.2, "{requests}, {commands}");
        assert!(per_s(&looks[..1], start, asked).is_err());
    }

    #[test]
    fn only_numbers_are_figures() {
        let printed = serde_json::json!({ "per_s": 5, "bulk_per_s": null, "name": "x" });
        assert_eq!(read(Run::Printed(printed)), Made::Figures([("per_s".to_owned(), 5.0)].into()));
        assert!(matches!(read(Run::Printed(Value::Null)), Made::Failed(_)));
    }
}
