//! Headers declare what scripts use, and nothing else.

use std::collections::BTreeSet;

use keylapse::internals::scripts;
use regex::Regex;

use super::source::{CHAINS, Source};

#[test]
fn each_header_is_complete_and_in_order() {
    for source in Source::all().into_values() {
        let name = &source.name;
        assert!(source.header.starts_with(&format!("-- {name}.lua: ")), "{name}");
        let fields: Vec<_> = source.fields.iter().map(|(field, _)| *field).collect();
        let needed: &[_] = if source.is_part() {
            &["Purpose", "KEYS"]
        } else {
            &["Purpose", "Parts", "Flags", "KEYS", "ARGV", "Returns"]
        };
        assert!(fields.starts_with(needed) || source.is_part(), "{name} has {fields:?}");
        assert!(needed.iter().all(|field| fields.contains(field)), "{name} has {fields:?}");
        assert!(source.fields.iter().all(|(_, text)| !text.is_empty()), "{name}");
    }
}

#[test]
fn the_library_knows_each_script() {
    let files: BTreeSet<_> = Source::bodies().map(|source| source.name).collect();
    let known: BTreeSet<_> = scripts::all().map(|script| script.name.to_owned()).collect();
    assert_eq!(files, known);
}

#[test]
fn what_is_used_is_declared_and_the_other_way_round() {
    for source in Source::bodies() {
        for what in ["KEYS", "ARGV"] {
            let numbers: Vec<_> = source.numbered(what).into_keys().collect();
            let expected: Vec<_> = (1..).take(numbers.len()).collect();
            assert_eq!(numbers, expected, "{what} of {}", source.name);
            let used = used(&source.whole(), what);
            assert_eq!(used, numbers.into_iter().collect(), "{what} of {}", source.name);
        }
    }
}

/// A part means the same key by a number as each body does.
#[test]
fn parts_and_bodies_agree_on_what_a_number_means() {
    let all = Source::all();
    for source in Source::bodies() {
        for part in source.words("Parts") {
            for what in ["KEYS", "ARGV"] {
                let own = source.numbered(what);
                for (number, meaning) in all[part].numbered(what) {
                    assert_eq!(
                        own.get(&number),
                        Some(&meaning),
                        "{what} {number} of {} and {part}",
                        source.name
                    );
                }
            }
        }
    }
}

#[test]
fn keys_are_called_what_the_header_calls_them() {
    let several = Regex::new(r"local ([\w, ]+) = (KEYS\[\d+\](?:, KEYS\[\d+\])*)").expect("a pattern");
    let number = Regex::new(r"\d+").expect("a pattern");
    for source in Source::all().into_values() {
        let declared = source.numbered("KEYS");
        for found in several.captures_iter(&source.code) {
            let numbers = number.find_iter(&found[2]).map(|digits| digits.as_str().parse::<u32>());
            for (name, number) in found[1].split(", ").zip(numbers) {
                let meaning = &declared[&number.expect("a number")];
                // `next` is a function of Lua's.
                assert_eq!(name, if meaning == "next" { "nxt" } else { meaning }, "{}", source.name);
            }
        }
    }
}

#[test]
fn each_part_that_is_named_is_needed_and_no_other() {
    let parts: Vec<_> = Source::all().into_values().filter(Source::is_part).collect();
    for source in Source::bodies() {
        let named = source.words("Parts");
        let needed = |part: &Source| {
            let others = named.iter().filter(|name| **name != part.name);
            let rest: String = others.map(|name| Source::all()[*name].code.clone()).collect();
            let names = defined(&part.code);
            names.iter().any(|name| has_word(&(rest.clone() + &source.code), name))
        };
        for part in &parts {
            // A body that names no part has words of its own for the same things.
            let expected = !named.is_empty() && needed(part);
            assert_eq!(named.contains(&part.name.as_str()), expected, "{} and {}", source.name, part.name);
        }
        let is_chain = CHAINS.iter().any(|chain| chain.starts_with(&named));
        assert!(is_chain, "each part needs the one before it: {} has {named:?}", source.name);
    }
}

fn used(code: &str, what: &str) -> BTreeSet<u32> {
    let index = Regex::new(&format!(r"{what}\[(\d+)\]")).expect("a pattern");
    index.captures_iter(code).map(|found| found[1].parse().expect("a number")).collect()
}

/// Functions and variables of a part that others are to use.
fn defined(code: &str) -> BTreeSet<String> {
    let function = Regex::new(r"(?m)^local function (\w+)").expect("a pattern");
    let variables = Regex::new(r"(?m)^local ([A-Z_, ]+|now|secs) ?[=,]").expect("a pattern");
    let functions = function.captures_iter(code).map(|found| found[1].to_owned());
    let lists = variables.captures_iter(code).map(|found| found[1].to_owned());
    functions.chain(lists.flat_map(|list| list.split(", ").map(str::to_owned).collect::<Vec<_>>())).collect()
}

fn has_word(code: &str, word: &str) -> bool {
    Regex::new(&format!(r"\b{word}\b")).expect("a pattern").is_match(code)
}
