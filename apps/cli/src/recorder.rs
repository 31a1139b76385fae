//! What the programs that stay record of themselves, for `/metrics`.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use crate::exit::Failed;

/// So often what was recorded is put into its buckets: until then it takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// From what is on time to what is hopelessly late.
const LATENESS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];
/// From what answers at once to the longest that an attempt mostly may take.
const WORK: [f64; 13] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Records from now on, once in a process. What this returns renders it.
pub(crate) fn install() -> Result<impl Fn() -> String + Send + Sync + 'static, Failed> {
    let recorder = builder().and_then(PrometheusBuilder::install_recorder);
    let recorder = recorder.map_err(|error| Failed::Findings(format!("nothing can be recorded: {error}")))?;
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
