//! No script touches a key that it was not given.

use std::collections::BTreeSet;

use super::source::Source;

/// Commands without a key. SPUBLISH names a channel, and that is an argument.
const KEYLESS: [&str; 2] = ["TIME", "SPUBLISH"];

/// The one exception: it must read its predecessor, whose name only the
/// server knows, in the moment in which it makes the next.
const COMPUTES_A_NAME: &str = "canary";

#[test]
fn every_key_of_every_command_is_declared() {
    for source in Source::all().into_values().filter(|source| source.name != COMPUTES_A_NAME) {
        let declared = declared(&source);
        for call in calls(&source.code) {
            for key in choices(&call.key) {
                assert!(declared.contains(key), "{}.lua: {} {key}", source.name, call.command);
            }
        }
    }
}

/// Names that stand for declared keys.
fn declared(source: &Source) -> BTreeSet<String> {
    let all = Source::all();
    let sources = source.before().into_iter().map(|part| &all[part]).chain([source]);
    let mut names = BTreeSet::new();
    for (number, name) in sources.flat_map(|one| one.numbered("KEYS")) {
        names.insert(format!("KEYS[{number}]"));
        names.insert(if name == "next" { "nxt".to_owned() } else { name });
    }
    // Names for one of the declared keys: parameters, choices, and the loop
    // over all of them.
    let aliases: &[&str] = match source.name.as_str() {
        "prelude" => &["zset"],
        "claim" => &["index", "zset"],
        "repair" => &["hashes[which]"],
        "peek" | "touch" | "trigger" => &["key"],
        _ => &[],
    };
    names.extend(aliases.iter().map(|&alias| alias.to_owned()));
    names
}

#[derive(Debug)]
struct Call {
    command: String,
    key: String,
}

/// The calls of commands with a key, and of the helpers that take one.
fn calls(code: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    for start in ["redis.call(", "redis.pcall("] {
        for (at, _) in code.match_indices(start) {
            let arguments = arguments(&code[at + start.len()..]);
            let command = arguments[0].trim_matches('\'').to_owned();
            if !KEYLESS.contains(&command.as_str()) {
                calls.push(Call { command, key: arguments[1].clone() });
            }
        }
    }
    for helper in ["head_of(", "wait_until("] {
        for (at, _) in code.match_indices(helper).filter(|(at, _)| !code[..*at].ends_with("function ")) {
            let key = arguments(&code[at + helper.len()..])[0].clone();
            calls.push(Call { command: helper.to_owned(), key });
        }
    }
    calls
}

/// Splits what follows an opening parenthesis at the commas of its own level.
fn arguments(code: &str) -> Vec<String> {
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
