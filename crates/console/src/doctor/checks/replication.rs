//! Whether replicas have what the primary has.

use crate::counted;
use crate::escape::plain;

use super::super::case::Case;
use super::super::codes;
use super::super::info::ReplicaLine;

/// Bytes that a replica may be behind. It says once a second how far it is, so a busy primary is always some ahead.
const BEHIND: u64 = 1 << 20;
/// Seconds that it may be silent.
const SILENT: u64 = 5;

pub(super) fn check(case: &mut Case) {
    if case.info.is_replica() {
        let link = case.info.get("master_link_status").unwrap_or("unknown").to_owned();
        if link != "up" {
            case.say(&codes::REPLICA_LAGS, format!("its link to the primary is {}", plain(&link, 20)));
        }
        return;
    }
    let ahead = case.info.number("master_repl_offset").unwrap_or_default();
    let replicas = case.info.replicas();
    for replica in &replicas {
        if let Some(observed) = lag(replica, ahead) {
            case.say(&codes::REPLICA_LAGS, observed);
        }
    }
    if !replicas.is_empty() && case.setting("min-replicas-to-write") == Some("0") {
        case.say(
            &codes::REPLICAS_UNASKED,
            format!("{}, min-replicas-to-write 0", counted(replicas.len() as u64, "replica")),
        );
    }
}

/// Why a replica counts as behind.
fn lag(replica: &ReplicaLine, ahead: u64) -> Option<String> {
    let ReplicaLine { host, port, state, offset, lag } = replica;
    let behind = ahead.saturating_sub(*offset);
    let (host, state) = (plain(host, 100), plain(state, 20));
    (state != "online" || behind > BEHIND || *lag > SILENT)
        .then(|| format!("{host}:{port} is {state}, {} behind, silent for {lag} s", counted(behind, "byte")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_may_be_a_second_behind() {
        let replica = |state: &str, offset, lag| ReplicaLine {
            host: "h".to_owned(),
            port: 1,
            state: state.to_owned(),
            offset,
            lag,
        };
        let ahead = 10 << 20;
        for (one, well) in [
            (replica("online", ahead, 0), true),
            (replica("online", ahead - 1000, 1), true),
            (replica("online", ahead - (2 << 20), 0), false),
            (replica("online", ahead, 6), false),
            (replica("wait_bgsave", ahead, 0), false),
        ] {
            assert_eq!(lag(&one, ahead).is_none(), well, "{one:?}");
        }
    }
}
