//! What the doctor finds. It asks much of the servers, so that a diagnosis is kept for a while, for all who ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keylapse::console::Console;
use keylapse::console::doctor::Diagnosis;
use tokio::sync::Mutex;

const KEPT: Duration = Duration::from_secs(10);
/// While a server does not answer.
const KEPT_BROKEN: Duration = Duration::from_secs(2);
/// The finding that there is a way to a server.
const ANSWERS: &str = "K100";

/// The diagnosis that was made last, and when.
#[derive(Debug, Default)]
pub(crate) struct Doctor(Mutex<Option<(Instant, Arc<Diagnosis>)>>);

impl Doctor {
    pub(crate) async fn look(&self, console: &Console) -> Arc<Diagnosis> {
        let mut kept = self.0.lock().await;
        if let Some((at, diagnosis)) = &*kept
            && at.elapsed() < if answers(diagnosis) { KEPT } else { KEPT_BROKEN }
        {
            return diagnosis.clone();
        }
        let diagnosis = Arc::new(console.doctor().await);
        *kept = Some((Instant::now(), diagnosis.clone()));
        diagnosis
    }
}

/// Whether there is a server.
pub(crate) fn answers(diagnosis: &Diagnosis) -> bool {
    diagnosis.findings.iter().any(|finding| finding.code == ANSWERS)
}
