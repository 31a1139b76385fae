//! The doctor's advice is followed to the letter: for each code something that shows it, its line run by a shell, and the
//! finding is gone.

mod cases;
mod first;

use std::any::Any;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use keylapse_console::doctor::codes;
use keylapse_support::{Deadline, script};
use serde_json::Value;
use tempfile::TempDir;

use self::cases::CASES;
use crate::commands::scene::{PATIENCE, run_at};

/// Lines that a test cannot follow, and why not.
const EXCEPTIONS: [(&str, &str); 18] = [
    ("K101", "what keeps a server away is outside of it: a process, an address, a firewall"),
    ("K103", "no server at hand is as old, and the line is for whoever installs them"),
    ("K105", "what was lost is back by the time of another look, or is K101"),
    ("K106", "there is no way from one machine to another"),
    ("K107", "a machine's clock is not a test's to set"),
    ("K108", "a machine's clock is not a test's to set"),
    ("K109", "the server needs a port of TLS, and a certificate"),
    ("K110", "the server needs another configuration, and a restart"),
    ("K111", "a proxy stands between, or the server has no RESP3"),
    ("K118", "it passes by itself: the line says how far it is"),
    ("K407", "the network or the load keeps a replica behind"),
    ("K504", "events are lost on the way"),
    ("K601", "a program has to be started"),
    ("K602", "a program has to be started"),
    ("K603", "listeners need more places, or the server less work"),
    ("K604", "what is lost is lost; a listener removes the names"),
    ("K606", "what was left behind is somebody's to judge"),
    ("K607", "what others have written is theirs to remove"),
];

/// Something that shows a finding, for as long as it is kept.
pub(super) struct Shown {
    pub(super) url: String,
    /// Behind `doctor`.
    pub(super) options: &'static [&'static str],
    /// Stands for PASSWORD.
    pub(super) password: &'static str,
    /// Variables of the shell.
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) kept: Box<dyn Any + Send>,
}

impl Shown {
    pub(super) fn at(url: impl Into<String>, kept: impl Any + Send) -> Self {
        let (options, password, environment) = (&[][..], "secret", Vec::new());
        Self { url: url.into(), options, password, environment, kept: Box::new(kept) }
    }
}

/// The findings of a run.
fn findings(out: &str) -> Vec<Value> {
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines.filter(|line| line["type"] == "finding").collect()
}

fn diagnose(shown: &Shown) -> Vec<Value> {
    let ran = run_at(&shown.url, &[&["--json", "doctor"], shown.options].concat(), b"");
    findings(&ran.out)
}

/// The line of this finding; none if it was not found.
fn line_of(found: &[Value], code: &str) -> Option<String> {
    let finding = found.iter().find(|finding| finding["code"] == code)?;
    Some(finding["fix"].as_str().unwrap_or_else(|| panic!("{finding} has no line")).to_owned())
}

/// A shell on a machine that has `keylapse` and `redis-cli`.
struct Shell(TempDir);

/// As much of it as these lines use.
const REDIS_CLI: &str = r#"exec bash -c 'export LC_ALL=C
exec 3<>"/dev/tcp/$2/$4" || exit 1
shift 4
printf "*%d\r\n" $# >&3
for word; do printf "\$%d\r\n%s\r\n" ${#word} "$word" >&3; done
IFS= read -r answer <&3
echo "$answer"
[ "${answer#-}" = "$answer" ]' redis-cli "$@""#;

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        script(&folder.path().join("redis-cli"), REDIS_CLI).expect("a script");
        let keylapse = Path::new(env!("CARGO_BIN_EXE_keylapse"));
        std::os::unix::fs::symlink(keylapse, folder.path().join("keylapse")).expect("a link");
        Self(folder)
    }

    /// Runs a line, and returns what it has written.
    fn run(&self, line: &str, shown: &Shown) -> (bool, String) {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("PATH", format!("{}:{path}", self.0.path().display()));
        shell.env("KEYLAPSE_URL", &shown.url).envs(shown.environment.iter().cloned());
        let ended = shell.output().expect("a shell");
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        (ended.status.success(), format!("{out}{err}"))
    }

    /// Runs a finding's line. A line that runs the doctor returns its findings; others return nothing.
    fn follow(&self, line: &str, shown: &Shown) -> Option<Vec<Value>> {
        let line = line.replace("PASSWORD=PASSWORD ", &format!("PASSWORD={} ", shown.password));
        let line = line.replace(">PASSWORD", &format!(">{}", shown.password));
        if line.ends_with(" doctor") {
            return Some(findings(&self.run(&format!("{line} --json"), shown).1));
        }
        let (fine, said) = self.run(&line, shown);
        assert!(fine, "{line}: {said}");
        None
    }
}

/// Follows the line, and one that takes its place, until the finding is gone.
async fn gone(code: &str, shown: &Shown) {
    let shell = Shell::new();
    let deadline = Deadline::after(3 * PATIENCE);
    let found = diagnose(shown);
    let (mut line, mut followed) = (line_of(&found, code), Vec::new());
    assert!(line.is_some(), "{code} is not shown: {found:#?}");
    while let Some(next) = line {
        assert!(!deadline.is_over(), "{code} is still there after {followed:?}");
        let found = if followed.contains(&next) {
            // The server takes a while to do what the line asked for: look again, and not at once.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            None
        } else {
            followed.push(next.clone());
            shell.follow(&next, shown)
        };
        line = line_of(&found.unwrap_or_else(|| diagnose(shown)), code);
    }
}

async fn follow_all(group: &str) {
    for (code, case) in CASES.iter().filter(|(code, _)| code.starts_with(group)) {
        match case.show().await {
            Some(shown) => gone(code, &shown).await,
            None => keylapse_support::skipped(&format!("{code}: the server at hand does not show it")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_servers_works() {
    follow_all("K1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_rights_works() {
    follow_all("K2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_events_works() {
    follow_all("K3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_memory_and_disk_works() {
    follow_all("K4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_lateness_works() {
    follow_all("K5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_topics_works() {
    follow_all("K6").await;
}

#[test]
fn each_line_is_followed_or_an_exception() {
    let followed: BTreeSet<_> = CASES.iter().map(|(code, _)| *code).collect();
    let excepted: BTreeSet<_> = EXCEPTIONS.iter().map(|(code, _)| *code).collect();
    assert_eq!(excepted.len(), EXCEPTIONS.len());
    let both: Vec<_> = followed.intersection(&excepted).collect();
    assert!(both.is_empty(), "{both:?} are followed");
    // Good news has nothing to follow.
    let all: BTreeSet<_> = codes().iter().filter(|code| !code.fix.is_empty()).map(|code| code.code).collect();
    assert_eq!(followed.union(&excepted).copied().collect::<BTreeSet<_>>(), all);
}
