//! Playing the harness with one kind of fault.

use std::path::PathBuf;
use std::time::Duration;

use keylapse_faults::fault::{Plan, Planned, ServerFault};
use keylapse_faults::harness::Cast;
use keylapse_faults::run::{durable_server, run};
use keylapse_faults::verdict::Report;

pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// The harness's program, which child processes are.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_faults"))
}

/// Two listeners and a producer, who arms nothing that takes its listener down.
pub(crate) fn cast() -> Cast {
    Cast {
        program: program(),
        listeners: 2,
        elder: false,
        producers: 1,
        per_second: 50,
        keys_per_second: 0,
        pills_per_thousand: 0,
        lease: LEASE,
        seed: 1,
        replicas: None,
    }
}

/// These faults of the server, one every 600 ms.
pub(crate) fn server_faults(faults: impl IntoIterator<Item = ServerFault>) -> Plan {
    let after = Duration::from_millis(600);
    let server = faults.into_iter().map(|fault| Planned { after, fault }).collect();
    Plan { server, ..Plan::default() }
}

/// Plays a plan to its end, prints the verdict, and fails unless every promise was kept.
pub(crate) async fn play(row: &str, plan: Plan) -> Report {
    let folder = tempfile::tempdir().expect("a folder for the ledgers");
    let report = run(&cast(), plan, None, durable_server(), folder.path()).await;
    println!("{row}: {report}");
    assert_valid(&report);
    assert!(report.handled > 0, "where nothing ran, nothing is proved");
    report
}

#[track_caller]
pub(crate) fn assert_valid(report: &Report) {
    let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_valid(), "{report}\n{}", findings.join("\n"));
}
