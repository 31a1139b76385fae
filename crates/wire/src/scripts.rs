//! The Lua scripts, assembled from their files as the headers specify.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::names::place_of;

/// A script as it is sent to the server.
#[derive(Debug)]
pub struct Script {
    /// The name of the file without `.lua`.
    pub name: &'static str,
    /// The whole text: shebang, parts, body.
    pub text: String,
    /// The SHA-1 hash of the text, as SCRIPT LOAD returns it.
    pub sha: String,
    /// The KEYS as positions in [`NAMES`](super::names::NAMES). Empty if the header names no keys of a partition.
    pub(super) keys: Vec<usize>,
    /// True if the script writes nothing.
    pub(super) reads_only: bool,
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $ident:ident = $name:literal;)*) => {
        $(
            $(#[$doc])*
            pub static $ident: LazyLock<Script> = LazyLock::new(|| {
                Script::assemble($name, &source($name, include_str!(concat!("scripts/", $name, ".lua"))))
            });
        )*

        /// Every script.
        pub fn all() -> impl Iterator<Item = &'static Script> {
            [$(&*$ident),*].into_iter()
        }
    };
}

scripts! {
    /// Creates or replaces timers.
    ARM = "arm";
    /// Claims due timers.
    CLAIM = "claim";
    /// Removes timers whose attempts have succeeded.
    ACK = "ack";
    /// Settles attempts in any other way.
    SETTLE = "settle";
    /// Renews leases.
    RENEW = "renew";
    /// Cancels timers.
    CANCEL = "cancel";
    /// Moves waiting timers to other deadlines.
    RESCHEDULE = "reschedule";
    /// Reads one timer.
    GET_TIMER = "get_timer";
    /// Reads the head of each index.
    PEEK = "peek";
    /// Wakes other listeners when one leaves work to them, or stops.
    WAKE_FOLLOWERS = "wake_followers";
    /// Pauses and resumes claims.
    PAUSE = "pause";
    /// Replays a dead letter.
    REPLAY = "replay";
    /// Deletes a dead letter.
    DELETE_DEAD_LETTER = "delete_dead_letter";
    /// Runs one step of the slow repair.
    REPAIR = "repair";
    /// Creates the meta of a partition.
    INIT = "init";
    /// Makes a partition publish a tail for a while.
    RENEW_WATCH = "renew_watch";
    /// Sets the limits of a partition's journal.
    SET_JOURNAL_LIMITS = "set_journal_limits";
    /// Closes a partition before its topic is destroyed, or opens it again.
    CLOSE_PARTITION = "close_partition";
    /// Removes the contents of a closed partition.
    DESTROY = "destroy";
    /// Runs one step of a repartition.
    REPARTITION_STEP = "repartition_step";
    /// Lists the names in one index or hash of a partition.
    LIST_NAMES = "list_names";
    /// Counts the contents of a partition, for operators.
    OVERVIEW = "overview";
    /// Reads a page of a partition's contents, for operators.
    PAGE = "page";
    /// Imports exported timers and dead letters, for operators.
    IMPORT = "import";
    /// Reads entries that move to another partition.
    MOVE_READ = "move_read";
    /// Writes entries that move to this partition.
    MOVE_WRITE = "move_write";
    /// Removes entries that have moved to another partition.
    MOVE_DELETE = "move_delete";
    /// Sets a marker key in another slot than the index.
    SET_MARKER = "set_marker";
    /// Adds a message to another program's list or stream, once.
    FORWARD = "forward";
    /// Deletes the marker key of an ended arming.
    DELETE_MARKER = "delete_marker";
    /// Saves the report of a listener.
    SAVE_REPORT = "save_report";
    /// Reads the reports of listeners.
    LIST_REPORTS = "list_reports";
    /// Creates the next heartbeat key.
    CANARY = "canary";
    /// Records announced expiries of attached keys.
    RECORD_EXPIRIES = "record_expiries";
    /// Stores deadlines of attached keys.
    TRACK_KEYS = "track_keys";
    /// Takes attached keys whose checks are due.
    TAKE_CHECKS = "take_checks";
    /// Applies the results of checks of attached keys.
    APPLY_CHECKS = "apply_checks";
    /// Agrees on the policy of an attached topic.
    SYNC_POLICY = "sync_policy";
    /// Takes or releases a duty of an attached topic.
    TAKE_DUTY = "take_duty";
    /// Reads attached keys.
    READ_KEYS = "read_keys";
    /// Writes an attached key back.
    WRITE_BACK = "write_back";
    /// Records that a written-back key has expired.
    WRITE_BACK_EXPIRED = "write_back_expired";
}

impl Script {
    /// Joins the shebang, the parts that the header names, and the body. A body that mostly ends before it needs its parts
    /// marks their place by [`PARTS_GO_HERE`]. The prelude always comes first.
    fn assemble(name: &'static str, body: &str) -> Self {
        let mut text = match header(body, "Flags").join(",") {
            none if none.is_empty() => "#!lua\n".to_owned(),
            flags => format!("#!lua flags={flags}\n"),
        };
        let (before, behind) = body.split_once(PARTS_GO_HERE).unwrap_or(("", body));
        let (first, others): (Vec<_>, Vec<_>) =
            header(body, "Parts").into_iter().partition(|part| before.is_empty() || *part == "prelude");
        first.iter().for_each(|part| text.push_str(&text_of(part)));
        text.push_str(before);
        others.iter().for_each(|part| text.push_str(&text_of(part)));
        text.push_str(behind);
        let reads_only = header(body, "Flags").contains(&"no-writes");
        Self { name, sha: sha(&text), text, keys: keys(body), reads_only }
    }

    /// Returns the script with a piece of text replaced.
    pub(super) fn replace(&self, from: &str, to: &str) -> Self {
        let text = self.text.replace(from, to);
        Self { name: self.name, sha: sha(&text), text, keys: self.keys.clone(), reads_only: self.reads_only }
    }
}

/// The line of a body that its parts replace.
const PARTS_GO_HERE: &str = "-- Parts are inserted here.\n";

fn text_of(part: &str) -> Cow<'static, str> {
    match part {
        "prelude" => source(part, include_str!("scripts/prelude.lua")),
        "timers" => source(part, include_str!("scripts/timers.lua")),
        "tail_journal" => source(part, include_str!("scripts/tail_journal.lua")),
        "markers" => source(part, include_str!("scripts/markers.lua")),
        "queued_timers" => source(part, include_str!("scripts/queued_timers.lua")),
        "dead_letters" => source(part, include_str!("scripts/dead_letters.lua")),
        "expiry_history" => source(part, include_str!("scripts/expiry_history.lua")),
        other => unreachable!("a script names an unknown part {other:?}"),
    }
}

fn sha(text: &str) -> String {
    keylapse_connection::Script::new(text).get_hash().to_owned()
}

/// Returns the text of a file as it was compiled in. A debug build reads it from the folder that `KEYLAPSE_SCRIPTS` names,
/// so that `make mutants` tests changed scripts without compiling.
fn source(name: &str, compiled: &'static str) -> Cow<'static, str> {
    let folder = if cfg!(debug_assertions) { std::env::var_os("KEYLAPSE_SCRIPTS") } else { None };
    let Some(folder) = folder else { return compiled.into() };
    let file = std::path::Path::new(&folder).join(name).with_extension("lua");
    let text = std::fs::read_to_string(&file);
    text.unwrap_or_else(|error| panic!("{}: {error}", file.display())).into()
}

/// Reads the numbered names after `KEYS`: `1 meta, 2 due` and so on.
fn keys(body: &str) -> Vec<usize> {
    let (_, behind) = body.split_once("-- KEYS ").unwrap_or_default();
    let (numbered, _) = behind.split_once("-- ARGV ").unwrap_or_default();
    let words = numbered.replace("\n--", " ");
    let names = words.split(',').filter_map(|item| item.trim().split_once(' '));
    names.filter(|(number, _)| number.parse::<u32>().is_ok()).filter_map(|(_, name)| place_of(name)).collect()
}

/// Returns the comma-separated words of a header line, without those in parentheses.
fn header<'a>(body: &'a str, field: &str) -> Vec<&'a str> {
    let line = body.lines().find_map(|line| line.strip_prefix("-- ")?.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty() && !word.starts_with('('))
        .collect()
}

/// Compares the numbers that scripts share with Rust or with each other.
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::policy::{CopySpec, FieldSelection};
    use crate::record::{CYCLES, OWN};
    use crate::time::MAX_DEADLINE_MS;
    use crate::{DEAD_AT, DUMP, FIELDS, QUARANTINE_AT, STRING, TOO_LARGE, touch_steps};

    /// Returns the value that `local … NAME … = … value …` assigns to `name` in a script with its parts.
    fn constant(script: &Script, name: &str) -> u64 {
        let pairs =
            script.text.lines().filter_map(|line| line.trim().strip_prefix("local ")?.split_once(" = "));
        let found = pairs.flat_map(|(names, values)| {
            let values = values.split(" --").next().unwrap_or_default().split(',').map(str::trim);
            names.split(',').map(str::trim).zip(values.collect::<Vec<_>>())
        });
        let values: Vec<u64> =
            found.filter(|(at, _)| *at == name).filter_map(|(_, text)| text.parse().ok()).collect();
        match values[..] {
            [value] => value,
            _ => panic!("{name} is defined {} times in {}.lua", values.len(), script.name),
        }
    }

    #[test]
    fn rust_and_the_scripts_have_the_same_numbers() {
        assert_eq!(constant(&CLAIM, "QUARANTINE_AT"), u64::from(QUARANTINE_AT));
        assert_eq!(constant(&CLAIM, "DEAD_AT"), u64::from(DEAD_AT));
        assert_eq!(constant(&ARM, "MAX_DEADLINE"), MAX_DEADLINE_MS);
        assert_eq!(constant(&APPLY_CHECKS, "CYCLES"), u64::from(CYCLES));
        assert_eq!(constant(&CLAIM, "OWN"), u64::from(OWN));
        assert_eq!(constant(&TAKE_CHECKS, "ENTRY_HEAD"), constant(&TRACK_KEYS, "ENTRY_HEAD"));
    }

    #[test]
    fn copies_begin_with_the_same_bytes() {
        for (kind, line) in [
            (TOO_LARGE, "if size > cap then return '\\1'"),
            (STRING, "return '\\2' .. body"),
            (DUMP, "return '\\3' .. dump"),
            (FIELDS, "return '\\5' .. body"),
        ] {
            assert!(line.contains(&format!("'\\{kind}'")));
            assert!(READ_KEYS.text.contains(line), "read_keys.lua has no {line:?}");
        }
    }

    /// To name a missing right, the commands of read_keys.lua are tried one by one.
    #[test]
    fn the_commands_that_are_tried_are_those_of_the_script() {
        let all = CopySpec { cap: 1, dumps: true, fields: FieldSelection::All };
        let tried = touch_steps(b"key", &all).0.into_iter().map(str::to_ascii_uppercase);
        let tried: BTreeSet<_> = tried.chain(["TIME".to_owned()]).collect();
        let code = READ_KEYS.text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let quoted = code.flat_map(|line| line.split('\'').skip(1).step_by(2));
        let is_command = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
        let called: BTreeSet<_> = quoted.filter(is_command).map(str::to_owned).collect();
        assert_eq!(tried, called);
    }
}
