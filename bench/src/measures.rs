//! One run of one case on one system, on a server of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use crate::{Case, Fault, Run, Server, System, Variable};

/// The figures of one run, by name.
pub type Figures = BTreeMap<String, f64>;

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Figures.
    Figures(Figures),
    /// The system does not have the measure.
    HasNot,
    /// The run failed, with the reason.
    Failed(String),
}

impl Made {
    /// Adds a figure: a count of the harness, divided by a figure of the system.
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

/// Keeps the numbers of the printed object.
fn read(run: Run) -> Made {
    match run {
        Run::Printed(Value::Object(printed)) => Made::Figures(
            printed.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect(),
        ),
        Run::Printed(other) => Made::Failed(format!("the last line is not an object: {other}")),
        Run::HasNot => Made::HasNot,
        Run::Failed(why) => Made::Failed(why),
    }
}

/// Measures the server's memory before and after.
async fn bytes(case: &Case, system: &System, server: &Server, with: &[Variable]) -> Result<Made, Fault> {
    let before = server.memory().await?;
    let made = read(system.measure(case.measure, with, case.limit).await?);
    // The server frees the buffers of the closed connection a moment later.
    sleep(Duration::from_millis(300)).await;
    let after = server.memory().await?;
    Ok(made.with_share("bytes", after.saturating_sub(before), "armed"))
}

/// The time between two looks at an idle worker.
const LOOK: Duration = Duration::from_millis(100);

/// The requests and commands up to a moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    requests: u64,
    commands: u64,
}

/// Counts requests and executed commands while the worker is idle. The worker's start and end do not count: only looks from
/// 75 % to 10 % of the requested time before its end do.
async fn idle(case: &Case, system: &System, server: &Server, with: &[Variable]) -> Result<Made, Fault> {
    let proxy = server.proxy().await;
    let url = [("BENCH_URL".to_owned(), proxy.url())];
    let environment: Vec<_> =
        with.iter().filter(|(name, _)| name != "BENCH_URL").chain(&url).cloned().collect();
    let mut looks: Vec<Look> = Vec::new();
    let watch = async {
        let mut counter = server.counter().await;
        loop {
            let commands = counter.commands().await?;
            looks.push(Look { at: Instant::now(), requests: proxy.requests(), commands });
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

/// Counts the requests of a worker for each job, from its start to its end. The worker connects through the counting proxy
/// (`BENCH_LINE`), and offers the jobs over another connection.
async fn requests(case: &Case, system: &System, server: &Server, with: &[Variable]) -> Result<Made, Fault> {
    let proxy = server.proxy().await;
    let mut environment = with.to_vec();
    environment.push(("BENCH_LINE".to_owned(), proxy.url()));
    let made = read(system.measure(case.measure, &environment, case.limit).await?);
    Ok(made.with_share("requests_per_job", proxy.requests(), "handled"))
}

/// Returns requests and commands per second.
fn per_s(looks: &[Look], ended: Instant, asked: Duration) -> Result<[f64; 2], Fault> {
    let within = |look: &&Look| {
        let left = ended - look.at;
        left <= asked.mul_f64(0.75) && left >= asked.mul_f64(0.1)
    };
    let counted: Vec<_> = looks.iter().filter(within).collect();
    let [from, .., to] = counted[..] else {
        return Err("the idle run was too short: fewer than two looks count".into());
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
        // The start and the end add a thousand each. Between them, there are two commands and one request a second.
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
