//! No script touches a key that it was not given, but for trigger keys and the journal.

use std::collections::BTreeSet;

use crate::source::{MARKERS, Source, TAIL_JOURNAL};

/// Commands without a key. SPUBLISH names a channel, and that is an argument.
const KEYLESS: [&str; 2] = ["TIME", "SPUBLISH"];

/// The one exception: it must read its predecessor, whose name only the
/// server knows, in the moment in which it makes the next.
const COMPUTES_A_NAME: &str = "canary";

#[test]
fn every_key_of_every_command_is_declared() {
    for source in Source::all().into_values().filter(|source| source.name != COMPUTES_A_NAME) {
        let declared = declared(&source);
        for call in calls(&source)
            .into_iter()
            .filter(|call| !is_of_a_marker_key(&source, call) && !is_of_the_journal(&source, call))
        {
            for key in choices(&call.key) {
                assert!(declared.contains(key), "{}.lua: {} {key}", source.name, call.command);
            }
        }
    }
}

/// Trigger keys are not declared beside the names of a partition: a server would refuse the whole call to a user who may
/// not touch one of them. So they are touched where a refusal is an answer, by the part that knows which
/// are ours; and one that nobody has is set by `arm` itself.
fn is_of_a_marker_key(source: &Source, call: &Call) -> bool {
    let sets_where_none_is = call.command == "SET" && call.last == "'NX'";
    call.guarded
        && match source.name.as_str() {
            MARKERS => call.key == "key",
            "arm" => sets_where_none_is && ["key", "keys[i]"].contains(&call.key.as_str()),
            _ => false,
        }
}

/// Most calls end timers of topics without a journal, and are to cost what they did: so it is not among their KEYS, and
/// named by the part that writes it. It is touched where a refusal is an answer.
fn is_of_the_journal(source: &Source, call: &Call) -> bool {
    source.name == TAIL_JOURNAL && call.guarded && call.key == "journal"
}

#[test]
fn the_journal_is_named_as_meta_is_and_touched_under_pcall_alone() {
    let part = &Source::all()[TAIL_JOURNAL];
    let calls = calls(part);
    assert!(!calls.is_empty() && calls.iter().all(|call| is_of_the_journal(part, call)), "{calls:?}");
    assert!(part.code.contains("local journal = sub(KEYS[1], 1, -5) .. 'journal'\n"));
    let at = keylapse_wire::names::PartitionNames::new("keylapse", "t", 0, 1, false);
    let meta = at.key("meta");
    assert_eq!(format!("{}journal", &meta[..meta.len() - 4]), at.key("journal"));
}

/// Callers of earlier releases do not name it, and the parts serve many bodies: so it is known by its name, and declared.
#[test]
fn what_was_tried_is_named_as_meta_is_and_declared_last() {
    let word = regex::Regex::new(r"\b(?:tried|add_tried|move_tried|remove_tried)\b").expect("a pattern");
    for source in Source::bodies() {
        let keys = source.numbered("KEYS");
        let is_last = keys.last_key_value().is_some_and(|(_, name)| name == "tried");
        let uses = word.is_match(&source.code) || source.words("Parts").contains(&"queued_timers");
        assert!(!uses || is_last, "{}", source.name);
        assert!(is_last || !keys.values().any(|name| name == "tried"), "{}", source.name);
    }
    let at = keylapse_wire::names::PartitionNames::new("keylapse", "t", 0, 1, false);
    let meta = at.key("meta");
    assert_eq!(format!("{}tried", &meta[..meta.len() - 4]), at.key("tried"));
}

/// The exception is needed where it is made: each call of the part, and two of `arm`.
#[test]
fn marker_keys_are_used_under_pcall_alone() {
    let all = Source::all();
    let of_markers = |name: &str| {
        let calls = calls(&all[name]);
        (calls.iter().filter(|call| is_of_a_marker_key(&all[name], call)).count(), calls.len())
    };
    let (all_of_them, calls) = of_markers(MARKERS);
    assert!(all_of_them > 0 && all_of_them == calls, "{calls} calls of {MARKERS}.lua");
    assert_eq!(of_markers("arm").0, 2, "of arm.lua");
}

/// Names that stand for declared keys.
fn declared(source: &Source) -> BTreeSet<String> {
    let all = Source::all();
    let sources = source.before().into_iter().map(|part| &all[part]).chain([source]);
    let mut names = BTreeSet::new();
    for (number, name) in sources.flat_map(|one| one.numbered("KEYS")) {
        names.insert(format!("KEYS[{number}]"));
        names.insert(name);
    }
    // By which scripts name it that are not told where it stands among their keys: see below.
    names.insert("tried".to_owned());
    // Names for one of the declared keys: parameters, choices, and the loop
    // over all of them.
    let aliases: &[&str] = match source.name.as_str() {
        "timers" | "reschedule" | "overview" => &["zset"],
        "claim" => &["index", "zset"],
        "repair" => &["hashes[which]"],
        "list_names" => &["hash", "zset"],
        "page" => &["zset"],
        "move_read" | "move_write" => &["places[place]"],
        "peek" | "read_keys" | "set_marker" => &["key"],
        _ => &[],
    };
    names.extend(aliases.iter().map(|&alias| alias.to_owned()));
    names
}

#[derive(Debug)]
struct Call {
    command: String,
    key: String,
    last: String,
    /// Whether a refusal is an answer, and does not end the script.
    guarded: bool,
}

/// The calls of commands with a key, and of the helpers that take one.
fn calls(source: &Source) -> Vec<Call> {
    let (code, mut calls) = (&source.code, Vec::new());
    for (start, guarded) in [("redis.call(", false), ("redis.pcall(", true)] {
        for (at, _) in code.match_indices(start) {
            let arguments = arguments(&code[at + start.len()..]);
            let command = arguments[0].trim_matches('\'').to_owned();
            if !KEYLESS.contains(&command.as_str()) {
                let last = arguments.last().cloned().unwrap_or_default();
                calls.push(Call { command, key: arguments[1].clone(), last, guarded });
            }
        }
    }
    let helpers: &[&str] = match source.name.as_str() {
        "reschedule" => &["head_of(", "index_timer(", "announce_if_earliest(", "write_scores("],
        // Called with trigger keys by others, too, but these declare theirs.
        "set_marker" | "delete_marker" => &["set_marker(", "delete_marker("],
        _ => &["head_of(", "index_timer(", "announce_if_earliest("],
    };
    for helper in helpers {
        for (at, _) in code.match_indices(helper).filter(|(at, _)| !code[..*at].ends_with("function ")) {
            let key = arguments(&code[at + helper.len()..])[0].clone();
            calls.push(Call { command: (*helper).to_owned(), key, last: String::new(), guarded: false });
        }
    }
    calls
}

/// Splits what follows an opening parenthesis at the commas of its own level.
pub(super) fn arguments(code: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut all) = (0, false, vec![String::new()]);
    for letter in code.chars() {
        match letter {
            '\'' => quoted = !quoted,
            '(' | '{' if !quoted => depth += 1,
            ')' | '}' if !quoted && depth == 0 => break,
            ')' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = all.last_mut() {
            last.push(letter);
        }
    }
    all.iter().map(|argument| argument.trim().to_owned()).collect()
}

/// `a` of `a`; `b` and `c` of `condition and b or c`.
fn choices(expression: &str) -> Vec<&str> {
    match expression.split_once(" and ") {
        Some((_, choices)) => choices.split(" or ").collect(),
        None => vec![expression],
    }
}

#[test]
fn arguments_are_split_at_their_own_level() {
    assert_eq!(
        arguments("'ZADD', lost >= 2 and quarantine or due, f(a, b), ',')) x"),
        ["'ZADD'", "lost >= 2 and quarantine or due", "f(a, b)", "','"]
    );
    assert_eq!(choices("lost >= 2 and quarantine or due"), ["quarantine", "due"]);
}
