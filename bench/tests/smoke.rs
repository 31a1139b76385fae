//! The harness and keylapse's measures, with tiny numbers. Shell scripts stand in for other systems.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use keylapse_bench::measures::{Figures, Made, make};
use keylapse_bench::{Case, Server, System, rounds};
use keylapse_support::script;
use tempfile::TempDir;

const DESCRIBE: &str = r#"describe) echo '{"name":"x","version":"1","language":"sh","settings":"none","survives_a_crash":true,"leaves_out":""}' ;;"#;

/// Returns a folder for the systems. Prints the reason and returns none if no server is found.
fn home() -> Option<TempDir> {
    match Server::at_hand() {
        Ok(_) => Some(tempfile::tempdir().expect("a folder")),
        Err(fault) => {
            eprintln!("SKIPPED: {fault}");
            None
        }
    }
}

fn system(peers: &Path, name: &str, body: &str) {
    let folder = peers.join(name);
    fs::create_dir_all(&folder).expect("a folder");
    script(&folder.join("run"), body).expect("a script");
}

/// Writes a system with these branches of a `case`.
fn played(peers: &Path, name: &str, branches: &str) {
    system(peers, name, &format!("case $1 in\n{DESCRIBE}\n{branches}\n*) exit 78 ;;\nesac"));
}

/// Writes the systems of this package's program.
fn ours(peers: &Path) {
    for name in keylapse_bench::OURS {
        let program = env!("CARGO_BIN_EXE_keylapse-peer");
        system(peers, name, &format!("[ $1 = check ] || exec {program} {name} $1"));
    }
}

fn harness(peers: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylapse-bench"));
    command.arg("--peers").arg(peers).args(["--rounds", "1"]).args(words).output().expect("the harness runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_tiny_run_ends_with_its_line_and_leaves_records_and_pictures() {
    let Some(home) = home() else { return };
    let (peers, records) = (home.path().join("peers"), home.path().join("records"));
    ours(&peers);
    let throughput = "throughput) echo noise; echo '{\"handled\":5,\"per_s\":50.0}' ;;";
    let arm = "arm) echo '{\"single_per_s\":1.0,\"concurrent_per_s\":5.0,\"bulk_per_s\":null}' ;;";
    let lives = "lives) echo '{\"handled\":500,\"lives_per_s\":5.0}' ;;";
    played(&peers, "peer", &format!("check) ;;\n{throughput}\n{arm}\n{lives}"));
    played(&peers, "absent", "check) echo there is no such toolchain >&2; exit 77 ;;");
    let plots = home.path().join("plots");
    let output = harness(
        &peers,
        &["--tiny", "--records", records.to_str().unwrap(), "--plots", plots.to_str().unwrap()],
    );
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("absent: skipped, there is no such toolchain"), "{printed}");

    let line = printed.trim().lines().last().unwrap();
    let names: Vec<_> = line.split(' ').map(|word| word.split('=').next().unwrap()).collect();
    let expected = "handled_per_s fastest_peer ratio_to_fastest_peer share_of_ceiling late_p50_ms late_p99_ms \
                    late_p99_ms_foreign early idle_requests_per_s bytes_per_timer arm_single_per_s \
                    arm_concurrent_per_s arm_ratio_to_fastest_queue lives_per_s lives_ratio";
    assert_eq!(names.join(" "), expected);
    assert!(
        line.contains("fastest_peer=peer") && line.contains("early=0") && !line.contains("none"),
        "{line}"
    );

    let records = fs::read_to_string(records).unwrap();
    let mut records = records.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert!(records.next().unwrap()["machine"]["processors"].as_u64() > Some(0));
    let rate = records.find(|record| record["system"] == "peer" && record["figure"] == "per_s").unwrap();
    assert_eq!((&rate["median"], &rate["unit"]), (&50.0.into(), &"1/s".into()));
    assert!(fs::read_to_string(plots.join("throughput.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn a_run_that_fails_is_in_the_table_and_in_the_exit_code() {
    let Some(home) = home() else { return };
    played(home.path(), "broken", "check) ;;\nthroughput) echo it broke >&2; exit 1 ;;");
    let output = harness(home.path(), &["--tiny", "--measures", "throughput"]);
    let printed = text(&output.stdout);
    assert!(printed.contains("broken FAILED: it broke"), "{printed}");
    assert!(!output.status.success());
}

/// Returns the figures of a system for a case.
async fn figures(peers: &Path, name: &str, case: &Case) -> Figures {
    let system = System::open(peers, name).await.expect("it can be asked").expect("it can run here");
    match make(case, &system).await.expect("it can be started") {
        Made::Figures(figures) => figures,
        other => panic!("{case}: {other:?}"),
    }
}

#[tokio::test]
async fn keylapse_has_each_of_its_own_measures() {
    let Some(home) = home() else { return };
    ours(home.path());
    let case = |measure| Case::new(measure, &[]).with("count", 100).with("order", "shuffled");
    for (case, figure, at_least) in [
        (case("arm"), "bulk_per_s", 1.0),
        (case("change"), "cancel_per_s", 1.0),
        (case("arm_cancel"), "pairs_per_s", 1.0),
        (case("lives"), "handled", 100.0),
        (case("arm_latency").with("rate", 500).with("count", 700), "probes", 10.0),
        (case("recovery"), "handled", 100.0),
        (case("retries"), "attempts", 400.0),
        (case("listeners").with("listeners", 2), "handled", 100.0),
        (case("listeners").with("listeners", 2).with("rate", 200), "handled", 100.0),
        (case("throughput").with("behind", 300), "handled", 100.0),
        (case("requests").with("rate", 200), "requests_per_job", 0.01),
    ] {
        let figures = figures(home.path(), "keylapse", &case).await;
        assert!(figures[figure] >= at_least, "{case}: {figures:?}");
        assert_eq!(figures.get("early").copied().unwrap_or(0.0), 0.0);
    }
}

#[tokio::test]
async fn what_arms_and_does_nothing_else_has_the_measures_of_arming() {
    let Some(home) = home() else { return };
    ours(home.path());
    for name in ["bare-script", "bare-script-no-markers", "bare-zadd"] {
        // 300 is not a multiple of 250, the jobs of one bulk call.
        for (measure, figure) in
            [("arm", "bulk_per_s"), ("change", "reschedule_per_s"), ("arm_cancel", "pairs_per_s")]
        {
            let case = Case::new(measure, &[]).with("count", 300);
            let figures = figures(home.path(), name, &case).await;
            assert!(figures[figure] >= 1.0, "{name} {case}: {figures:?}");
        }
    }
}

#[tokio::test]
async fn the_floor_is_never_early() {
    let Some(home) = home() else { return };
    ours(home.path());
    let case = Case::new("lateness", &[]).with("count", 200).with("rate", 1000);
    let figures = figures(home.path(), "floor", &case).await;
    assert_eq!((figures["handled"], figures["early"]), (200.0, 0.0));
}

#[tokio::test]
async fn what_is_mostly_waiting_waits_side_by_side() {
    let Some(home) = home() else { return };
    let mut systems = Vec::new();
    // Each system waits for the other's file. In turn, the first would never end.
    for (name, other) in [("one", "two"), ("two", "one")] {
        let (own, other) = (home.path().join(name).join("mark"), home.path().join(other).join("mark"));
        let wait = format!("touch {}; until [ -e {} ]; do sleep 0.05; done", own.display(), other.display());
        played(home.path(), name, &format!("check) ;;\nwait) {wait}; echo '{{\"handled\":1}}' ;;"));
        systems.push(System::open(home.path(), name).await.unwrap().unwrap());
    }
    let case = Case::new("wait", &[]).side_by_side().within(Duration::from_secs(20));
    for measured in rounds::run(&case, &systems, 1).await.unwrap() {
        assert_eq!((measured.rounds.len(), measured.failures), (1, Vec::new()));
    }
}

#[tokio::test]
async fn a_worker_is_killed_with_all_that_it_has_started() {
    let Some(home) = home() else { return };
    let mark = home.path().join("lives");
    let kill =
        format!("check) ;;\nkill) (sleep 2; touch {}) & echo '{{\"started\":10}}'; wait ;;", mark.display());
    let again = "kill_again) echo '{\"again\":10,\"seconds\":[0.5,2.5,1.5]}' ;;";
    played(home.path(), "killed", &format!("{kill}\n{again}"));
    let figures = figures(home.path(), "killed", &Case::new("kill", &[])).await;
    assert_eq!((figures["again"], figures["last_again_s"]), (10.0, 2.5));
    // The started process would write its file within 2 s.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!mark.exists(), "a process of the killed worker continued");
}

/// Plays each scene for a few seconds: its line is whole, and no timer is lost, early or fires twice.
#[test]
#[ignore = "half a minute: cargo test -p keylapse-bench --test bench smoke -- --ignored plays it"]
fn each_scene_of_attached_topics_ends_with_its_line() {
    let Some(_home) = home() else { return };
    let sessions = ["--sessions", "500x200@1000", "--seconds", "4", "--alone", "1", "--ttl", "2"];
    let hot = ["--hot-keys", "100", "--minutes", "0.05"];
    let flood = ["--flood-keys", "2000", "--unenrolled", "500", "--managed", "1000", "--lead", "4"];
    let output = Command::new(env!("CARGO_BIN_EXE_keylapse-bench-attach"))
        .args(["--flags", "KExg$", "--patience", "20"])
        .args(sessions.iter().chain(&hot).chain(&flood))
        .output()
        .expect("the scenes are played");
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    let lines: Vec<_> = printed.lines().filter(|line| line.starts_with("scene=")).collect();
    for (line, expected, whole) in [
        (
            lines[0],
            "scene flags keys value_bytes refreshes_per_s rss_mb leavers_p50_ms leavers_p99_ms values_missing \
             server_core flags_core server_mb_extra lost early",
            "lost=0 early=0",
        ),
        (
            lines[1],
            "scene keys minutes us_per_expiry_first us_per_expiry_last longest_script_ms bytes_per_key lost twice",
            "lost=0 twice=0",
        ),
        (
            lines[2],
            "scene flags keys unenrolled handled started_per_s managed_per_s ratio rss_mb lost_enrolled \
             lost_unenrolled twice early",
            "lost_enrolled=0 lost_unenrolled=0 twice=0 early=0",
        ),
    ] {
        let names: Vec<_> = line.split(' ').map(|word| word.split('=').next().unwrap()).collect();
        assert_eq!(names.join(" "), expected);
        assert!(line.ends_with(whole), "{printed}");
    }
    assert!(lines[0].contains(" values_missing=0 ") && !lines[0].contains("none"), "{printed}");
    assert!(lines[2].contains(" handled=2000 "), "{printed}");
}
