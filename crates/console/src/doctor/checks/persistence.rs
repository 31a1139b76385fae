//! What is left of timers after a restart.

use super::super::case::Case;
use super::super::codes::{self, Code};

pub(super) fn check(case: &mut Case) {
    let Some(log) = case.info.number("aof_enabled") else { return };
    disk(case, log != 0);
    if log == 0 {
        let (code, observed) = without_log(case.setting("save"));
        return case.say(&code, observed);
    }
    match case.setting("appendfsync").unwrap_or("unknown").to_owned() {
        always if always == "always" => {}
        when => case.say(&codes::SYNCED_EACH_SECOND, format!("appendonly yes, appendfsync {when}")),
    }
    if !case.has_said(&[codes::EVICTS_ALL, codes::EVICTS_VOLATILE, codes::DISK_FAILS]) {
        let policy = case.info.get("maxmemory_policy").unwrap_or("unknown").to_owned();
        case.say(&codes::KEPT, format!("appendonly yes, maxmemory-policy {policy}"));
    }
}

/// Whether there are snapshots only CONFIG says.
fn without_log(save: Option<&str>) -> (Code, String) {
    match save {
        None => {
            (codes::SNAPSHOTS_ONLY, "appendonly no; whether there are snapshots cannot be read".to_owned())
        }
        Some("") => (codes::NOT_PERSISTENT, "appendonly no, save ''".to_owned()),
        Some(save) => (codes::SNAPSHOTS_ONLY, format!("appendonly no, save '{save}'")),
    }
}

fn disk(case: &mut Case, log: bool) {
    let mut states = vec!["rdb_last_bgsave_status"];
    if log {
        states.extend(["aof_last_write_status", "aof_last_bgrewrite_status"]);
    }
    let fails = |name: &&str| case.info.get(name).is_some_and(|state| state != "ok");
    let failing: Vec<_> = states.into_iter().filter(fails).collect();
    if !failing.is_empty() {
        case.say(&codes::DISK_FAILS, format!("{} is not ok", failing.join(", ")));
    }
}
