//! The Lua scripts: put together from their files, by what their headers say.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::names::place_of;

/// A script as the server gets it.
#[derive(Debug)]
pub struct Script {
    /// The file's name without `.lua`.
    pub name: &'static str,
    /// The whole text: shebang, parts, body.
    pub text: String,
    /// What SCRIPT LOAD answers for the text.
    pub sha: String,
    /// Which of [`NAMES`](super::names::NAMES) it takes as KEYS, by their places there; none where the
    /// header names no keys of a partition.
    pub(super) keys: Vec<usize>,
    /// Whether it writes nothing.
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
    /// Create or replace timers.
    ARM = "arm";
    /// Take what is due.
    CLAIM = "claim";
    /// The good end of attempts.
    ACK = "ack";
    /// Every other end.
    SETTLE = "settle";
    /// Keep what is held.
    RENEW = "renew";
    /// Withdraw timers.
    CANCEL = "cancel";
    /// Move a waiting timer.
    RESCHEDULE = "reschedule";
    /// Read one timer.
    GET_TIMER = "get_timer";
    /// The head of each index.
    PEEK = "peek";
    /// More is due than one listener can run.
    WAKE_FOLLOWERS = "wake_followers";
    /// Stop and start claims.
    PAUSE = "pause";
    /// Bring a dead letter back.
    REPLAY = "replay";
    /// Forget a dead letter.
    DELETE_DEAD_LETTER = "delete_dead_letter";
    /// One step of the slow repair.
    REPAIR = "repair";
    /// Create a partition's meta.
    INIT = "init";
    /// Have a partition tell what it starts and ends.
    RENEW_WATCH = "renew_watch";
    /// How much of what has ended it keeps.
    SET_JOURNAL_LIMITS = "set_journal_limits";
    /// Close a partition for its topic's end, or open it again.
    CLOSE_PARTITION = "close_partition";
    /// Remove what a closed partition holds.
    DESTROY = "destroy";
    /// Take a partition through a change of the number of partitions.
    REPARTITION_STEP = "repartition_step";
    /// Name what a partition holds.
    LIST_NAMES = "list_names";
    /// Operators: how a partition is.
    OVERVIEW = "overview";
    /// Operators: what a partition holds, page by page.
    PAGE = "page";
    /// Operators: bring back what was exported.
    IMPORT = "import";
    /// Read what is to move to another partition.
    MOVE_READ = "move_read";
    /// Write what moves there.
    MOVE_WRITE = "move_write";
    /// Remove what has moved.
    MOVE_DELETE = "move_delete";
    /// Set trigger keys where they lie elsewhere than the index.
    SET_MARKER = "set_marker";
    /// Put something into a list or stream that is not ours, once.
    FORWARD = "forward";
    /// Delete a trigger key of an ended arming.
    DELETE_MARKER = "delete_marker";
    /// A listener says how it is.
    SAVE_REPORT = "save_report";
    /// What listeners have said.
    LIST_REPORTS = "list_reports";
    /// Make the next canary.
    CANARY = "canary";
    /// Attached keys: expiries were heard.
    RECORD_EXPIRIES = "record_expiries";
    /// Attached keys: deadlines were read.
    TRACK_KEYS = "track_keys";
    /// Attached keys: which have to be looked at.
    TAKE_CHECKS = "take_checks";
    /// Attached keys: what checks have found.
    APPLY_CHECKS = "apply_checks";
    /// Attached keys: how they are treated.
    SYNC_POLICY = "sync_policy";
    /// Attached keys: who scans.
    TAKE_DUTY = "take_duty";
    /// Attached keys: read them.
    READ_KEYS = "read_keys";
    /// Attached keys: write one back.
    WRITE_BACK = "write_back";
    /// Attached keys: one that was written back has expired.
    WRITE_BACK_EXPIRED = "write_back_expired";
}

impl Script {
    /// Shebang, the parts that the header names, the body. A body that mostly ends before it needs them says where
    /// they stand instead; the prelude is first in any case.
    fn assemble(name: &'static str, body: &str) -> Self {
        let mut text = match header(body, "Flags").join(",") {
            none if none.is_empty() => "#!lua\n".to_owned(),
            flags => format!("#!lua flags={flags}\n"),
        };
        let (before, behind) = body.split_once(PARTS_STAND_HERE).unwrap_or(("", body));
        let (first, others): (Vec<_>, Vec<_>) =
            header(body, "Parts").into_iter().partition(|part| before.is_empty() || *part == "prelude");
        first.iter().for_each(|part| text.push_str(&text_of(part)));
        text.push_str(before);
        others.iter().for_each(|part| text.push_str(&text_of(part)));
        text.push_str(behind);
        let reads_only = header(body, "Flags").contains(&"no-writes");
        Self { name, sha: sha(&text), text, keys: keys(body), reads_only }
    }

    /// The same script with one piece of text replaced.
    pub(super) fn replace(&self, from: &str, to: &str) -> Self {
        let text = self.text.replace(from, to);
        Self { name: self.name, sha: sha(&text), text, keys: self.keys.clone(), reads_only: self.reads_only }
    }
}

/// The line of a body in whose place its parts stand.
const PARTS_STAND_HERE: &str = "-- Here stand the parts.\n";

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

/// The text of one file: what was compiled in. A debug build takes it from the folder that `KEYLAPSE_SCRIPTS` names:
/// `make mutants` tries changed scripts that way, without compiling anything again.
fn source(name: &str, compiled: &'static str) -> Cow<'static, str> {
    let folder = if cfg!(debug_assertions) { std::env::var_os("KEYLAPSE_SCRIPTS") } else { None };
    let Some(folder) = folder else { return compiled.into() };
    let file = std::path::Path::new(&folder).join(name).with_extension("lua");
    let text = std::fs::read_to_string(&file);
    text.unwrap_or_else(|error| panic!("{}: {error}", file.display())).into()
}

/// The numbered names behind `KEYS`: `1 meta, 2 due` and so on.
fn keys(body: &str) -> Vec<usize> {
    let (_, behind) = body.split_once("-- KEYS ").unwrap_or_default();
    let (numbered, _) = behind.split_once("-- ARGV ").unwrap_or_default();
    let words = numbered.replace("\n--", " ");
    let names = words.split(',').filter_map(|item| item.trim().split_once(' '));
    names.filter(|(number, _)| number.parse::<u32>().is_ok()).filter_map(|(_, name)| place_of(name)).collect()
}

/// The comma-separated words of a header line, without what is in parentheses.
fn header<'a>(body: &'a str, field: &str) -> Vec<&'a str> {
    let line = body.lines().find_map(|line| line.strip_prefix("-- ")?.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty() && !word.starts_with('('))
        .collect()
}

/// Numbers that stand in the scripts and in Rust, or in two scripts: a change of one alone is found here.
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::policy::{CopySpec, FieldSelection};
    use crate::record::{CYCLES, OWN};
    use crate::time::MAX_DEADLINE_MS;
    use crate::{DEAD_AT, DUMP, FIELDS, QUARANTINE_AT, STRING, TOO_LARGE, touch_steps};

    /// What `local … NAME … = … value …` gives `name` in a script with its parts.
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
            _ => panic!("{name} stands {} times in {}.lua", values.len(), script.name),
        }
    }

    #[test]
    fn rust_and_the_scripts_have_the_same_numbers() {
        assert_eq!(constant(&CLAIM, "QUARANTINE_AT"), u64::from(QUARANTINE_AT));
        assert_eq!(constant(&CLAIM, "DEAD_AT"), u64::from(DEAD_AT));
        assert_eq!(constant(&ARM, "MAX_DEADLINE"), MAX_DEADLINE_MS);
        assert_eq!(constant(&APPLY_CHECKS, "CYCLES"), u64::from(CYCLES));
        assert_eq!(constant(&CLAIM, "OWN"), u64::from(OWN));
        assert_eq!(constant(&TAKE_CHECKS, "SIZE"), constant(&TRACK_KEYS, "HEAD"));
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

    /// A right that is refused is named by trying the commands of read_keys.lua one by one.
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
