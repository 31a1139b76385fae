//! What a script may do on a full server, and that it runs on each.

use std::collections::BTreeMap;

use keylapse_support::{Binary, Server};
use keylapse_wire::scripts;
use redis::{RedisResult, Value, cmd};

/// A full server drains: what claims, keeps, ends or withdraws timers goes on.
/// So does what was heard or seen of other programs' keys, which nobody says twice; and what moves between partitions,
/// which takes as much from the one as it gives to the other.
const DRAIN: [&str; 26] = [
    "ack",
    "canary",
    "cancel",
    "take_checks",
    "claim",
    "close_partition",
    "destroy",
    "delete_dead_letter",
    "init",
    "set_journal_limits",
    "apply_checks",
    "record_expiries",
    "wake_followers",
    "pause",
    "sync_policy",
    "move_write",
    "renew",
    "repair",
    "save_report",
    "repartition_step",
    "write_back_expired",
    "take_duty",
    "settle",
    "move_delete",
    "renew_watch",
    "delete_marker",
];
/// What needs room is refused before it has written anything.
const FILL: [&str; 8] =
    ["arm", "track_keys", "forward", "import", "replay", "reschedule", "write_back", "set_marker"];
const READ: [&str; 8] =
    ["list_names", "get_timer", "overview", "page", "peek", "list_reports", "move_read", "read_keys"];

#[test]
fn flags_are_as_intended() {
    let kinds =
        [(&DRAIN[..], "#!lua flags=allow-oom"), (&FILL[..], "#!lua"), (&READ[..], "#!lua flags=no-writes")];
    let expected: BTreeMap<_, _> = kinds
        .into_iter()
        .flat_map(|(names, first_line)| names.iter().map(move |name| (*name, first_line)))
        .collect();
    let found: BTreeMap<_, _> =
        scripts::all().map(|script| (script.name, script.text.lines().next().unwrap_or_default())).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn each_server_takes_each_script_and_names_it_as_we_do() {
    for binary in Binary::all().expect("a server") {
        let server = Server::builder().binary(binary).start().await;
        let mut line = server.conn().await;
        for script in scripts::all() {
            let sha: RedisResult<String> =
                cmd("SCRIPT").arg("LOAD").arg(&script.text).query_async(&mut line).await;
            assert_eq!(
                sha.as_ref().ok(),
                Some(&script.sha),
                "{} on {}: {sha:?}",
                script.name,
                server.version()
            );
        }
    }
}

#[tokio::test]
async fn a_full_server_refuses_what_fills_it_and_nothing_else() {
    for binary in Binary::all().expect("a server") {
        let server = Server::builder().binary(binary).start().await;
        let mut line = server.conn().await;
        cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec_async(&mut line).await.expect("it is full now");
        for script in scripts::all() {
            // Without keys and arguments none gets far, but some are not begun.
            let answer: RedisResult<Value> =
                cmd("EVAL").arg(&script.text).arg(0).query_async(&mut line).await;
            let refused = answer.is_err_and(|error| error.code() == Some("OOM"));
            assert_eq!(refused, FILL.contains(&script.name), "{} on {}", script.name, server.version());
        }
    }
}
