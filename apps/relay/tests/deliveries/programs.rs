//! Programs that are run for what is due.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use keylapse_support::eventually;

use crate::Rig;

async fn rig(settings: &str, script: &str) -> Rig {
    let exec = format!("exec = {{ argv = [\"/bin/sh\", \"program\"], directory = \".\"{settings} }}");
    let text =
        format!("grace = \"100ms\"\n[topics.orders]\npattern = \"order:{{id}}\"\nmax-attempts = 1\n{exec}\n");
    Rig::with_secrets(&text, &[("program", script)]).await
}

/// Once the file has a whole line.
async fn line(folder: &Path, name: &str) -> String {
    let mut found = String::new();
    eventually(Duration::from_secs(20), name, async || {
        found = read_to_string(folder.join(name)).unwrap_or_default();
        found.ends_with('\n')
    })
    .await;
    found.trim().to_owned()
}

#[tokio::test]
async fn a_program_is_run_for_each_and_the_last_it_says_stands_in_the_letter() {
    let rig =
        rig("", "read amount; echo \"$KEYLAPSE_KEY $amount\" > told; echo \"no stock\" >&2; exit 3").await;
    rig.arm("42", "5\n").await;
    assert_eq!(line(rig.folder(), "told").await, "order:42 5");
    let letter = format!("{:?}", rig.letters(1).await);
    assert!(letter.contains("exit status: 3: no stock"), "{letter}");
}

/// It is killed with what it has started, and its timer runs again when somebody is there.
#[tokio::test]
async fn a_program_that_runs_when_all_stops_is_killed_and_its_timer_handed_back() {
    let rig = rig("", "sleep 1000 & echo $! > child; wait").await;
    rig.arm("1", "x").await;
    let child = line(rig.folder(), "child").await;
    let server = rig.stop().await;
    let stat = format!("/proc/{child}/stat");
    eventually(Duration::from_secs(20), "the child to be gone", async || {
        let state = read_to_string(&stat).unwrap_or_default();
        state.is_empty() || state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    })
    .await;
    let left = server.cmd(&["HLEN", "keylapse:{orders/0}:timers"]).await;
    assert_eq!(left, redis::Value::Int(1));
}
