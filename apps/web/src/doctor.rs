//! What the doctor finds. It asks much of the servers, so that a diagnosis is kept for a while, for all who ask.

use std::sync::Arc;
use std::time::Duration;

use keylapse_console::Console;
use keylapse_console::doctor::Diagnosis;
use tokio::sync::Mutex;

use crate::recent::Last;

const KEPT: Duration = Duration::from_secs(10);
/// While a server does not answer.
const KEPT_BROKEN: Duration = Duration::from_secs(2);
/// The finding that there is a way to a server.
const ANSWERS: &str = "K100";

/// The diagnosis that was made last.
#[derive(Debug, Default)]
pub(crate) struct Doctor(Mutex<Last<Arc<Diagnosis>>>);

impl Doctor {
    /// The diagnosis, and how old it is.
    pub(crate) async fn look(&self, console: &Console) -> (Arc<Diagnosis>, Duration) {
        let life = |diagnosis: &Arc<_>| if answers(diagnosis) { KEPT } else { KEPT_BROKEN };
        let mut last = self.0.lock().await;
        let diagnosis = last.within(life, async { Arc::new(console.doctor().await) }).await;
        (diagnosis, last.age())
    }
}

/// Whether there is a server.
pub(crate) fn answers(diagnosis: &Diagnosis) -> bool {
    diagnosis.findings.iter().any(|finding| finding.code == ANSWERS)
}
