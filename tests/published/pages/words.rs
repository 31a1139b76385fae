//! Words of ours on the guide's pages are those of the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(crate::REPOSITORY).join(path)).expect("a file of ours")
}

/// All words that begin so.
fn words_with<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.len() > prefix.len() && word.starts_with(prefix)).collect()
}

/// Those of the feature `metrics`, and those of the page that `keylapse serve` shows.
#[test]
fn each_metric_that_the_guide_names_is_recorded() {
    let recorded = read("src/stats/meter/recorded.rs") + &read("src/stats/meter.rs");
    let recorded = recorded + &read("web/src/metrics/fleet.rs");
    let pages =
        ["docs/operations.md", "docs/running.md", "docs/retries.md", "docs/messages.md", "docs/alerts.yml"];
    for page in pages {
        let page = read(page);
        for name in words_with(&page, "keylapse_") {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_metric = recorded.contains(&format!("\"{}\"", histogram.unwrap_or(name)));
            assert!(is_metric, "{name} is no metric");
        }
    }
    assert!(words_with(&read("docs/running.md"), "keylapse_").len() > 5, "the alerts name metrics");
}

#[test]
fn each_reason_of_a_dead_letter_stands_on_its_page() {
    let source = read("crates/wire/src/record.rs");
    let (_, names) = source.split_once("fn names(self)").expect("the reasons");
    let (names, _) = names.split_once("\n    }\n").expect("their end");
    let words: BTreeSet<_> = names.split('"').skip(1).step_by(2).collect();
    let page = read("docs/retries.md");
    let (_, table) = page.split_once("| reason | why |").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    let listed: BTreeSet<_> = table.split("\n| `").skip(1).filter_map(|row| row.split('`').next()).collect();
    assert_eq!(listed, words, "the reasons on docs/retries.md, and in crates/wire/src/record.rs");
}
