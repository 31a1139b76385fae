//! Rights to read keys that are missing: each is said once, until an answer shows that it is there.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::attached::reader::StreamReader;
use crate::attached::request::{Look, Request};
use crate::escape::Escaped;
use crate::events::Touched;
use crate::log::warn;
use crate::runtime::RefusedRead;
use crate::wire::Found;

/// Where no answer shows that a right is there, as no such key is read any more: after so long without a refusal it is.
const UNREFUSED: Duration = Duration::from_secs(60);

impl StreamReader {
    /// Logs and counts a read that the server refuses, and ends the refusals that its answer disproves.
    pub(super) fn note_refusal(&self, request: &Request, touched: &Touched, sent: Instant) {
        let (partition, keys): (_, Vec<&Bytes>) = match request {
            Request::Look(Look { partition, watches, .. }) => {
                (*partition, watches.iter().map(|one| &one.key).collect())
            }
            Request::Glance(read) | Request::Read(read) => (read.partition, read.keys.iter().collect()),
            _ => return,
        };
        let (topic, Some(key)) = (self.topic(partition), keys.first()) else { return };
        let by = self.stream.node();
        if let Some((_, found)) = &touched.answer {
            let is_script = !matches!(request, Request::Glance(_));
            topic.refusals.end_reads(by, sent, |read| {
                let shown = || {
                    shows(&read.rule, is_script, found)
                        || read.rule.starts_with('~') && keys.contains(&&read.key)
                };
                read.by == by && shown() || read.last.elapsed() >= UNREFUSED
            });
        }
        let Some(error) = &touched.refused else { return };
        topic.attached.refused_reads.add(keys.len());
        let rule = rule_of(error, topic.config.pattern.literal_prefix());
        let read = RefusedRead { by, rule: rule.clone(), key: Bytes::clone(key), last: sent };
        let key = Escaped(key);
        if topic.refusals.begin_read(read, &format!("{key}: {error}; the rule is {rule}")) {
            warn!(topic = %topic.config.name, %key, %rule, %error, "attached keys cannot be read: a right is missing");
        }
    }
}

/// The rule that a user lacks. All servers name a command alike: "… to run the 'get' command".
fn rule_of(error: &str, prefix: &str) -> String {
    let command = error.split_once(" run the '").and_then(|(_, rest)| rest.split_once('\''));
    command.map_or_else(|| format!("~{prefix}*"), |(name, _)| format!("+{}", name.to_ascii_lowercase()))
}

/// Returns whether touch.lua has run the command of this rule. The kinds of copies in its answer show which it has run.
fn shows(rule: &str, is_script: bool, found: &[Found]) -> bool {
    let copied = |kind: u8| found.iter().any(|one| one.copy.first() == Some(&kind));
    match rule {
        "+pexpiretime" => true,
        "+time" | "+evalsha" | "+eval" => is_script,
        "+type" => found.iter().any(|one| !one.copy.is_empty()),
        "+strlen" | "+get" => copied(2),
        "+dump" => copied(3),
        "+hlen" | "+hkeys" | "+hstrlen" | "+hmget" => copied(5),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ServerTime;
    use crate::wire::Life;

    #[test]
    fn what_a_server_refuses_names_the_rule_that_is_missing() {
        for (said, rule) in [
            ("the user may not run the 'strlen' command on them", "+strlen"),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'get' command script: on",
                "+get",
            ),
            ("NOPERM User u has no permissions to run the 'client|id' command", "+client|id"),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", "~a:*"),
            ("NOPERM No permissions to access a key", "~a:*"),
        ] {
            assert_eq!(rule_of(&format!("reading keys: {said}; compare"), "a:"), rule, "{said}");
        }
    }

    #[test]
    fn only_an_answer_for_which_a_command_was_run_shows_that_it_may_be() {
        let found = |copy: &'static [u8]| {
            [Found { stamp: ServerTime(0), life: Life::Until(1), copy: Bytes::from_static(copy) }]
        };
        for (rule, enough, not) in [
            ("+get", &b"\x02a"[..], &b"\x04"[..]),
            ("+hmget", b"\x05", b"\x02a"),
            ("+dump", b"\x03a", b"\x01"),
            ("+type", b"\x04", b""),
        ] {
            assert!(shows(rule, true, &found(enough)) && !shows(rule, true, &found(not)), "{rule}");
        }
        assert!(shows("+pexpiretime", false, &found(b"")) && !shows("+evalsha", false, &found(b"")));
        assert!(!shows("+llen", true, &found(b"\x03a")) && !shows("~a:*", true, &found(b"\x02a")));
    }
}
