//! A cache of the doctor's diagnosis, which takes many calls to the servers.

use std::sync::Arc;
use std::time::Duration;

use keylapse_console::Console;
use keylapse_console::doctor::Diagnosis;
use tokio::sync::Mutex;

use crate::recent::Last;

/// How long a diagnosis is cached.
const KEPT: Duration = Duration::from_secs(10);
/// How long a diagnosis is cached while no server answers.
const KEPT_BROKEN: Duration = Duration::from_secs(2);
/// Code of the finding that a server answers.
const ANSWERS: &str = "K100";

/// The last diagnosis.
#[derive(Debug, Default)]
pub(crate) struct Doctor(Mutex<Last<Arc<Diagnosis>>>);

impl Doctor {
    /// Returns the diagnosis, and how old it is.
    pub(crate) async fn look(&self, console: &Console) -> (Arc<Diagnosis>, Duration) {
        let life = |diagnosis: &Arc<_>| if answers(diagnosis) { KEPT } else { KEPT_BROKEN };
        let mut last = self.0.lock().await;
        let diagnosis = last.within(life, async { Arc::new(console.doctor().await) }).await;
        (diagnosis, last.age())
    }
}

/// Returns whether a server answers.
pub(crate) fn answers(diagnosis: &Diagnosis) -> bool {
    diagnosis.findings.iter().any(|finding| finding.code == ANSWERS)
}
