//! Records the metrics of long-running commands, for `/metrics`.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use crate::exit::CliError;

/// How often recorded values are put into buckets. Until then they take memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// Buckets of lateness in seconds, from on time to hopelessly late.
const LATENESS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];
/// Buckets of durations in seconds, up to the usual timeout of an attempt.
const WORK: [f64; 13] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Installs the recorder, once in a process. The returned function renders the metrics.
pub(crate) fn install() -> Result<impl Fn() -> String + Send + Sync + 'static, CliError> {
    let recorder = builder().and_then(PrometheusBuilder::install_recorder);
    let recorder = recorder
        .map_err(|error| CliError::Findings(format!("cannot install the metrics recorder: {error}")))?;
    let upkeep = recorder.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    Ok(move || recorder.render())
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets(&WORK)?
        .set_buckets_for_metric(Matcher::Full("keylapse_lateness_seconds".to_owned()), &LATENESS)
}
