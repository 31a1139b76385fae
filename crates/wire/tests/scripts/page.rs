//! docs/internals/wire.md names what there is.

use std::collections::BTreeSet;

use keylapse_wire::DeadReason;
use keylapse_wire::names::{PartitionNames, WIRE_VERSION, partition_of};
use regex::Regex;

use crate::source::Source;

const PAGE: &str = include_str!("../../../../docs/internals/wire.md");

#[test]
fn every_script_is_there_with_its_header() {
    for Source { name, header, .. } in Source::all().into_values() {
        let section = format!("#### {name}\n\n```lua\n{header}\n```\n");
        assert!(
            PAGE.contains(&section),
            "docs/internals/wire.md lacks, or has another version of:\n{section}"
        );
    }
    let sections = PAGE.lines().filter(|line| line.starts_with("#### ")).count();
    assert_eq!(sections, Source::all().len(), "and no other");
}

#[test]
fn every_name_of_a_partition_is_there() {
    let at = PartitionNames::new("keylapse", "<topic>", 0, 1, false);
    for name in at.all().iter().chain([&at.wake]) {
        let (_, word) = name.split_once("}:").expect("a hash tag");
        assert!(PAGE.contains(&format!("\n| `{word}` | ")), "{word}");
    }
    assert!(PAGE.contains(&format!("**wire version {WIRE_VERSION}**")));
    for code in errors() {
        assert!(PAGE.contains(&format!("\n| `{code}` | ")), "{code}");
    }
}

/// The codes with which scripts refuse.
fn errors() -> BTreeSet<String> {
    let error = Regex::new(r"error_reply\('(\w+) ").expect("a pattern");
    let codes = |source: Source| {
        let codes: Vec<_> = error.captures_iter(&source.code).map(|found| found[1].to_owned()).collect();
        codes
    };
    Source::all().into_values().flat_map(codes).collect()
}

#[test]
fn every_reason_is_there() {
    let reasons =
        (0..=u8::MAX).map(DeadReason::from_code).filter(|reason| !matches!(reason, DeadReason::Other(_)));
    for reason in reasons {
        let row = format!("\n| `{}` | {}", char::from(reason.code()), reason.as_str());
        assert!(PAGE.contains(&row), "{row}");
    }
}

#[test]
fn keys_have_the_partitions_of_the_table() {
    let row = Regex::new(r"(?m)^\| `(.+)` \| (\d+) \| (\d+) \|$").expect("a pattern");
    let rows: Vec<_> = row.captures_iter(PAGE).collect();
    assert!(rows.len() >= 5);
    for row in rows {
        let number = |place: usize| row[place].parse::<u32>().expect("a number");
        assert_eq!(partition_of(row[1].as_bytes(), number(2)), number(3), "{}", &row[1]);
    }
}
