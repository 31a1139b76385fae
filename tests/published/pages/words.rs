//! Words of ours on the guide's pages are those of the source.

use std::collections::BTreeSet;

use super::read;

/// All words that begin so.
fn words_with<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.len() > prefix.len() && word.starts_with(prefix)).collect()
}

/// Those of the feature `metrics`, and those of the page that `keylapse serve` shows.
#[test]
fn each_metric_that_the_guide_names_is_recorded() {
    let recorded = read("src/stats/meter.rs");
    let recorded = recorded + &read("apps/web/src/metrics.rs") + &read("apps/relay/src/metrics.rs");
    let pages = ["docs/monitor.md", "docs/retries.md", "docs/messages.md", "docs/alerts.yml"];
    for page in pages {
        // Paths of a crate stand in its programs.
        let page = read(page).replace("keylapse_console::", "");
        for name in words_with(&page, "keylapse_") {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_metric = recorded.contains(&format!("\"{}\"", histogram.unwrap_or(name)));
            assert!(is_metric, "{name} is no metric");
        }
    }
    assert!(words_with(&read("docs/monitor.md"), "keylapse_").len() > 5, "the alerts name metrics");
}

#[test]
fn each_reason_of_a_dead_letter_stands_on_its_page() {
    let source = read("crates/wire/src/outcome.rs");
    let (_, names) = source.split_once("fn names(self)").expect("the reasons");
    let (names, _) = names.split_once("\n    }\n").expect("their end");
    let words: BTreeSet<_> = names.split('"').skip(1).step_by(2).collect();
    let page = read("docs/retries.md");
    let (_, table) = page.split_once("| reason | why |").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    let listed: BTreeSet<_> = table.split("\n| `").skip(1).filter_map(|row| row.split('`').next()).collect();
    assert_eq!(listed, words, "the reasons on docs/retries.md, and in crates/wire/src/outcome.rs");
}

/// What stands behind a field in each row of the table of outcomes that has it.
fn of_outcomes(field: &str, begins: &str, ends: &str) -> Vec<String> {
    let source = read("crates/wire/src/outcome.rs");
    let (_, table) = source.split_once("\noutcomes! {").expect("the table");
    let (table, _) = table.split_once("\n}\n").expect("its end");
    let values: Vec<_> = table
        .split(&format!("{field}: {begins}"))
        .skip(1)
        .map(|behind| behind.split_once(ends).map_or(behind, |(value, _)| value).to_owned())
        .collect();
    assert!(values.len() > 3, "the table has rows with a {field}");
    values
}

/// The part of a page from here to there.
fn part_of(page: &str, from: &str, to: &str) -> String {
    let text = read(page);
    let (_, behind) = text.split_once(from).unwrap_or_else(|| panic!("{page} has no {from:?}"));
    behind.split_once(to).unwrap_or_else(|| panic!("{page} has no {to:?} behind {from:?}")).0.to_owned()
}

/// An outcome is a row of the table in the source: its words and its bytes stand where users look for them.
#[test]
fn each_outcome_stands_on_its_pages() {
    let attempts = part_of("docs/monitor.md", "| `keylapse_lapses_total` |", " |\n");
    let journal = part_of("docs/internals/wire.md", "| how it ended | |", "\n\n");
    let tail = part_of("docs/internals/wire.md", "| what happened | the attempt | the time |", "\n\n");
    let told = part_of("docs/json-lines.md", "| `event` (optional) |", " |\n");
    let ended = part_of("docs/json-lines.md", "\n## `journal_entry`\n", "\n## ");
    let failed = part_of("docs/messages.md", "\n## Attempts and dead letters\n", "\n## ");
    let settled = part_of("docs/internals/wire.md", "-- settle.lua:", "-- Returns:");
    let mut missing = Vec::new();
    let mut look = |place: &str, text: &str, word: String| {
        if !text.contains(&word) {
            missing.push(format!("{word} in {place}"));
        }
    };
    for row in of_outcomes("word", "", "\n    ///") {
        let word = row.split('"').nth(1).expect("a word").to_owned();
        let (is_told, goes_on) = (row.contains("shown: "), row.contains("goes_on: true"));
        if row.contains("attempt: Some(") {
            look("keylapse_lapses_total of docs/monitor.md", &attempts, format!("`{word}`"));
        }
        if row.contains("\"failed\"") {
            look("the attempts of docs/messages.md", &failed, word.clone());
        }
        if is_told {
            look("`event` of docs/json-lines.md", &told, format!("`{word}`"));
        }
        if is_told && !goes_on {
            look("`journal_entry` of docs/json-lines.md", &ended, format!("`{word}`"));
        }
        if let Some((_, code)) = row.split_once("code: Some(b'") {
            let code = format!("`{}`", &code[..1]);
            look("the tail of docs/internals/wire.md", &tail, code.clone());
            if !goes_on {
                look("the journal of docs/internals/wire.md", &journal, code);
            }
        }
    }
    for name in of_outcomes("lua", "Some(\"", "\"") {
        look("settle.lua of docs/internals/wire.md", &settled, format!("'{name}'"));
    }
    assert!(missing.is_empty(), "the pages lack: {missing:#?}");
}

#[test]
fn each_answer_of_a_handler_stands_on_its_page() {
    let answers = part_of("src/outcome.rs", "pub enum Outcome {", "\n}\n");
    let names = answers.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(char::is_uppercase));
    let names: Vec<_> = names.filter_map(|line| line.split(['(', ',']).next()).collect();
    assert!(names.contains(&"Again") && names.contains(&"Drop"), "{names:?}");
    let table = part_of("docs/retries.md", "| an attempt | then |", "\n\n");
    for name in names.into_iter().filter(|name| *name != "Done") {
        assert!(
            table.contains(&format!("`Outcome::{name}")),
            "docs/retries.md does not say what {name} leads to"
        );
    }
}
