//! Tests with real programs, and checks that no process is left.

use std::path::Path;

use keylapse_support::script;
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use super::*;
use crate::occurrence::{KeptFields, OccurrenceValue};

/// Creates a program with this script.
fn program(folder: &TempDir, body: &str) -> Exec {
    let path = folder.path().join("program");
    script(&path, body).unwrap();
    Exec {
        argv: vec![path.display().to_string(), "an argument".to_owned()],
        directory: Some(folder.path().to_owned()),
        env: [("OWN".to_owned(), "its own".to_owned())].into(),
        timeout: Duration::from_secs(20),
        max_output: 1000,
    }
}

fn order(value: &'static [u8]) -> Occurrence {
    Occurrence { value: OccurrenceValue::Bytes(value.into()), ..Occurrence::for_tests() }
}

/// Returns the file that the program has written.
fn left(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).unwrap()
}

/// Waits until the file exists and its last line has ended.
async fn until_left(folder: &Path, name: &str) -> String {
    loop {
        match std::fs::read_to_string(folder.join(name)) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::task::yield_now().await,
        }
    }
}

/// Waits until the process has ended. Its parent may still have to reap it.
async fn until_gone(pid: &str) {
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let gone = async {
        while test_kill_process(pid).is_ok() && !is_dead(pid) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), gone).await.expect("it is gone");
}

/// Returns whether the process is a zombie, which its parent has not reaped.
fn is_dead(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

async fn ended(folder: &TempDir, script: &str) -> Result<Outcome, String> {
    let ended = program(folder, script).deliver("orders", &order(b"1")).await;
    ended.map_err(|failure| failure.message().to_owned())
}

#[tokio::test]
async fn how_it_ends_is_how_the_attempt_ends() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(ended(&folder, "exit 0").await, Ok(Outcome::Done)));
    assert!(matches!(ended(&folder, "exit 75").await, Ok(Outcome::Snooze(PUT_OFF))));
    assert_eq!(ended(&folder, "exit 3").await.unwrap_err(), "exit status: 3");
    assert_eq!(ended(&folder, "echo so; echo why; exit 1").await.unwrap_err(), "exit status: 1: why");
    assert_eq!(ended(&folder, "echo why >&2; exit 1").await.unwrap_err(), "exit status: 1: why");
    assert!(ended(&folder, "kill -9 $$").await.unwrap_err().contains("signal: 9"));
}

/// The order and the amount of the output do not matter.
#[tokio::test]
async fn its_error_is_the_last_line_of_its_errors_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    for (body, said) in [
        ("echo why >&2; echo so; exit 1", "why"),
        ("echo so; echo why >&2; exit 1", "why"),
        ("echo before >&2; echo why >&2; echo >&2; echo ' ' >&2; echo so; exit 1", "why"),
        ("echo >&2; echo so; exit 1", "so"),
        ("head -c 100000 /dev/zero | tr '\\0' y; echo why >&2; exit 1", "why"),
        ("for i in $(seq 1000); do echo line $i; done; exit 1", "line 1000"),
        ("printf 'no end' >&2; exit 1", "no end"),
    ] {
        assert_eq!(ended(&folder, body).await.unwrap_err(), format!("exit status: 1: {said}"), "{body}");
    }
}

#[tokio::test]
async fn it_is_told_by_its_environment_and_input_and_by_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let exec = program(&folder, "echo \"$#:$1\" > argv; env > env; cat > stdin");
    let of = Occurrence { key: "order:1 \u{e9}; rm -rf".into(), ..order(b"pay\0load") };
    exec.deliver("orders", &of).await.unwrap();
    assert_eq!(left(&folder, "argv"), "1:an argument\n");
    assert_eq!(left(&folder, "stdin"), "pay\0load");
    let env = left(&folder, "env");
    for line in [
        "KEYLAPSE_KEY=order:1 \u{e9}; rm -rf",
        "KEYLAPSE_TOPIC=orders",
        "KEYLAPSE_ID=0123456789abcdef",
        "KEYLAPSE_ATTEMPT=1",
        "KEYLAPSE_DEADLINE_MS=1790000000000",
        "OWN=its own",
    ] {
        assert!(env.lines().any(|found| found == line), "{line}: {env}");
    }
    let known = ["KEYLAPSE_", "OWN=", "PWD=", "SHLVL=", "_="];
    let passed = |line: &str| PASSED.iter().any(|name| line.starts_with(&format!("{name}=")));
    assert!(env.lines().all(|line| passed(line) || known.iter().any(|name| line.starts_with(name))), "{env}");
    assert!(std::env::vars().any(|(name, _)| !PASSED.contains(&&*name)), "there is something to keep back");
}

const PASSED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

#[tokio::test]
async fn a_key_with_a_nul_is_told_in_base64() {
    let folder = tempfile::tempdir().unwrap();
    let exec = program(&folder, "env | grep ^KEYLAPSE_KEY > env");
    exec.deliver("orders", &Occurrence { key: b"a\0b"[..].into(), ..order(b"") }).await.unwrap();
    assert_eq!(left(&folder, "env"), "KEYLAPSE_KEY_BASE64=YQBi\n");
}

#[tokio::test]
async fn fields_that_were_kept_are_its_input_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(&folder, "cat > stdin; echo \"$KEYLAPSE_FIELDS_BASE64\" > encoded");
    for (value, input, encoded) in
        [(&b"1.10"[..], r#"{"a":"1.10"}"#, "\n"), (b"\xfe", r#"{"YQ==":"/g=="}"#, "1\n")]
    {
        let value = OccurrenceValue::Fields(KeptFields::for_tests(&[(b"a", value)]));
        program.deliver("orders", &Occurrence { value, ..Occurrence::for_tests() }).await.unwrap();
        assert_eq!((&*left(&folder, "stdin"), &*left(&folder, "encoded")), (input, encoded));
    }
}

/// Input and output are larger than a pipe, and neither side waits for the other.
#[tokio::test]
async fn what_it_does_not_read_or_nobody_keeps_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let large =
        Occurrence { value: OccurrenceValue::Bytes(vec![b'x'; 1 << 20].into()), ..Occurrence::for_tests() };
    let writes = program(&folder, "head -c 1000000 /dev/zero | tr '\\0' y; echo; echo last; exit 9");
    let failure = writes.deliver("orders", &large).await.unwrap_err();
    assert_eq!(failure.message(), "exit status: 9: last");
    let writes = program(&folder, "head -c 1000000 /dev/zero | tr '\\0' y; exit 9");
    let failure = writes.deliver("orders", &large).await.unwrap_err();
    assert_eq!(failure.message(), format!("exit status: 9: {}", "y".repeat(1000)));
    let silenced = Exec { max_output: 0, ..writes };
    assert_eq!(silenced.deliver("orders", &large).await.unwrap_err().message(), "exit status: 9");
    let reads = program(&folder, "wc -c > count");
    reads.deliver("orders", &large).await.unwrap();
    assert_eq!(left(&folder, "count").trim(), "1048576");
}

#[tokio::test]
async fn one_that_is_missing_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let exec = Exec { argv: vec!["/nowhere/at-all".to_owned()], ..program(&folder, "") };
    let failure = exec.deliver("orders", &order(b"1")).await.unwrap_err();
    assert!(failure.message().starts_with("/nowhere/at-all cannot be started: "), "{}", failure.message());
}

const FAMILY: &str = "sleep 1000 & echo $! > child; echo $$ > self";

#[tokio::test]
async fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let exec = Exec { timeout: Duration::from_millis(500), ..program(&folder, &format!("{FAMILY}; wait")) };
    let failure = exec.deliver("orders", &order(b"1")).await.unwrap_err();
    assert!(failure.message().contains("had not ended after 500ms"), "{}", failure.message());
    until_gone(&left(&folder, "self")).await;
    until_gone(&left(&folder, "child")).await;
}

/// Otherwise the attempt would wait for its output, or it would run at the same time as the next attempt.
#[tokio::test]
async fn what_it_left_in_the_background_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    program(&folder, FAMILY).deliver("orders", &order(b"1")).await.unwrap();
    until_gone(&left(&folder, "child")).await;
}

#[tokio::test]
async fn an_attempt_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let exec = program(&folder, &format!("{FAMILY}; wait"));
    let of = order(b"1");
    let child = tokio::select! {
        _ = exec.deliver("orders", &of) => panic!("it does not end"),
        child = async {
            until_left(folder.path(), "self").await;
            left(&folder, "child")
        } => child,
    };
    until_gone(&child).await;
    until_gone(&left(&folder, "self")).await;
}
