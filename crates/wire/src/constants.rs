//! Numbers that stand in the scripts and in Rust, or in two scripts: a change of one alone is found here.

use std::collections::BTreeSet;

use super::copy::{DUMP, FIELDS, STRING, TOO_LARGE};
use super::record::{CYCLES, OWN};
use super::scripts;
use crate::time::MAX_DEADLINE_MS;

/// What `local … NAME … = … value …` gives `name` in a script with its parts.
fn constant(script: &scripts::Script, name: &str) -> u64 {
    let pairs = script.text.lines().filter_map(|line| line.trim().strip_prefix("local ")?.split_once(" = "));
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
    use super::calls::claim::{DEAD_AT, QUARANTINE_AT};
    assert_eq!(constant(&scripts::CLAIM, "QUARANTINE_AT"), u64::from(QUARANTINE_AT));
    assert_eq!(constant(&scripts::CLAIM, "DEAD_AT"), u64::from(DEAD_AT));
    assert_eq!(constant(&scripts::ARM, "MAX_DEADLINE"), MAX_DEADLINE_MS);
    assert_eq!(constant(&scripts::JUDGE, "CYCLES"), u64::from(CYCLES));
    assert_eq!(constant(&scripts::CLAIM, "OWN"), u64::from(OWN));
    assert_eq!(constant(&scripts::CHECKS, "SIZE"), constant(&scripts::ENROL, "HEAD"));
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
        assert!(scripts::TOUCH.text.contains(line), "touch.lua has no {line:?}");
    }
}

/// A right that is refused is named by trying the commands of touch.lua one by one.
#[test]
fn the_commands_that_are_tried_are_those_of_the_script() {
    use super::calls::attached::touch_steps;
    use crate::policy::{Capture, Fields};
    let all = Capture { cap: 1, dumps: true, fields: Fields::All };
    let tried = touch_steps(b"key", &all).0.into_iter().map(str::to_ascii_uppercase);
    let tried: BTreeSet<_> = tried.chain(["TIME".to_owned()]).collect();
    let code = scripts::TOUCH.text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let quoted = code.flat_map(|line| line.split('\'').skip(1).step_by(2));
    let is_command = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let called: BTreeSet<_> = quoted.filter(is_command).map(str::to_owned).collect();
    assert_eq!(tried, called);
}
