//! Headers declare what scripts use, and nothing else.

use std::collections::BTreeSet;
use std::ops::Range;

use keylapse_wire::scripts;
use regex::Regex;

use crate::source::{CHAINS, MARKERS, Source, TAIL_JOURNAL};

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
            let mut used: BTreeSet<_> = used(&source.whole(), what);
            // It is known by its name: see `keys`.
            used.extend(
                source.numbered(what).into_iter().find(|(_, name)| name == "tried").map(|(number, _)| number),
            );
            let of_the_first = if what == "ARGV" { of_the_first_timer(&source) } else { 0..0 };
            let used: BTreeSet<_> =
                used.into_iter().filter(|number| !of_the_first.contains(number)).collect();
            assert_eq!(used, numbers.into_iter().collect(), "{what} of {}", source.name);
        }
    }
}

/// The arguments of the first timer follow those that have a number, where so many are said to follow per timer.
fn of_the_first_timer(source: &Source) -> Range<u32> {
    let widths = Regex::new(r"local BASE, WIDTH = (\d+), (\d+)\n").expect("a pattern");
    let Some(found) = widths.captures(&source.code) else { return 0..0 };
    let [base, width] = [1, 2].map(|place| found[place].parse::<u32>().expect("a number"));
    assert_eq!(source.numbered("ARGV").into_keys().max(), Some(base), "BASE of {}", source.name);
    assert!(source.field("ARGV").is_some_and(|text| text.contains("then per ")), "{}", source.name);
    base + 1..base + width + 1
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
                assert_eq!(name, meaning, "{}", source.name);
            }
        }
    }
}

#[test]
fn each_part_that_is_named_is_needed_and_no_other() {
    let parts: Vec<_> = Source::all().into_values().filter(Source::is_part).collect();
    for source in Source::bodies() {
        let named = source.words("Parts");
        // What a body has words of its own for, it needs from nobody.
        let own = defined(&source.code);
        let needed = |part: &Source| {
            let others = named.iter().filter(|name| **name != part.name && **name != MARKERS);
            let rest: String = others.map(|name| Source::all()[*name].code.clone()).collect();
            let names = defined(&part.code);
            names.difference(&own).any(|name| has_word(&(rest.clone() + &source.code), name))
        };
        for part in &parts {
            // A body that names no part has words of its own for the same things.
            let expected = !named.is_empty() && needed(part);
            assert_eq!(named.contains(&part.name.as_str()), expected, "{} and {}", source.name, part.name);
        }
        let chained: Vec<_> =
            named.iter().copied().filter(|part| ![MARKERS, TAIL_JOURNAL].contains(part)).collect();
        let is_chain = CHAINS.iter().any(|chain| chain.starts_with(&chained));
        assert!(is_chain, "each part needs the one before it: {} has {named:?}", source.name);
    }
}

#[test]
fn marker_keys_need_a_clock_and_nothing_else() {
    let all = Source::all();
    for part in all.values().filter(|part| part.is_part() && part.name != MARKERS) {
        for name in defined(&part.code).iter().filter(|name| *name != "now") {
            assert!(!has_word(&all[MARKERS].code, name), "{MARKERS} uses {name} of {}", part.name);
        }
    }
    for source in Source::bodies() {
        let named = source.words("Parts");
        let Some(place) = named.iter().position(|part| *part == MARKERS) else { continue };
        assert!(!named[place..].contains(&"timers"), "{} has {named:?}", source.name);
        let has_clock = named.contains(&"prelude")
            || source.ahead.as_deref().is_some_and(|code| defined(code).contains("now"));
        assert!(has_clock || !has_word(&source.code, "set_marker"), "{} has no clock", source.name);
    }
}

#[test]
fn what_stands_ahead_of_the_parts_needs_none_but_the_prelude() {
    let all = Source::all();
    let mut seen = 0;
    for source in Source::bodies() {
        let Some(ahead) = &source.ahead else { continue };
        seen += 1;
        let parts = source.words("Parts").into_iter().filter(|part| *part != "prelude");
        for part in parts.clone() {
            for name in defined(&all[part].code) {
                assert!(!has_word(ahead, &name), "{} uses {name} before {part}", source.name);
            }
        }
        assert!(parts.count() > 0, "{} has nothing to put there", source.name);
        // Inside of a block, what the parts define would end with it.
        let open = |word: &str| word_count(ahead, word);
        let opened = open("if") + open("do") + open("function");
        assert_eq!(opened, open("end"), "{}: the line stands in a block", source.name);
    }
    assert!(seen > 0);
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
    functions
        .chain(lists.flat_map(|list| list.split(", ").map(|name| name.trim().to_owned()).collect::<Vec<_>>()))
        .collect()
}

fn has_word(code: &str, word: &str) -> bool {
    word_count(code, word) > 0
}

/// How often a word stands in code, outside of texts such as names of commands.
fn word_count(code: &str, word: &str) -> usize {
    let code = Regex::new("'[^'\\n]*'").expect("a pattern").replace_all(code, "''");
    Regex::new(&format!(r"\b{word}\b")).expect("a pattern").find_iter(&code).count()
}
