//! docs/recipes.md has current programs and names all recipes. Two pages have the recorded results: docs/comparison.md the
//! sums, and docs/internals/benchmarks.md each scene.
//!
//! `KEYLAPSE_BLESS=1 cargo test -p recipes --test recipes page` updates the pages. `make recipes-record` runs all recipes
//! and records their results.

use std::fs;
use std::path::PathBuf;

use recipes::RECIPES;
use recipes::record::Record;

/// A program on the page has at most this many lines.
const MAX_LINES: usize = 84;

/// Returns the path of a file in the repository.
fn file(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", path].iter().collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks that a page has this text, or writes the text if `KEYLAPSE_BLESS` is set.
fn compare(path: &str, expected: &str) {
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        fs::write(file(path), expected).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert!(read(path) == expected, "{path} is out of date; see the top of this file");
}

/// Returns the page with the current file in each block after a `<!-- file -->` line. After `<!-- file as Shop::close -->`
/// the block has the program as readers paste it, with their own type `Shop`.
fn with_programs(page: &str) -> String {
    let mut parts = page.split("<!-- recipes/src/");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (marker, rest) = part.split_once(" -->\n```").expect("a code block after the name of its file");
        let (language, rest) = rest.split_once('\n').expect("the first line of the code block");
        let program = match marker.split_once(" as ") {
            Some((path, own)) => pasted(&read(&format!("recipes/src/{path}")), own),
            None => read(&format!("recipes/src/{marker}")),
        };
        let after = rest.strip_prefix("```").or_else(|| rest.split_once("\n```").map(|(_, after)| after));
        let after = after.expect("the end of the code block");
        whole.push_str(&format!("<!-- recipes/src/{marker} -->\n```{language}\n{program}```{after}"));
    }
    whole
}

/// Returns a program with a type of the reader in place of [`recipes::stage::World`]. With `Shop::close`, the call
/// `world.act(…)` becomes `shop.close(…)`.
fn pasted(program: &str, own: &str) -> String {
    let (own, method) = own.split_once("::").expect("a type and a method");
    let state = own.to_lowercase();
    let program = program.replace("crate::stage::World", &format!("crate::{own}"));
    let program = program.replace("world.act(", &format!("{state}.{method}("));
    program.replace("World", own).replace("world", &state)
}

#[test]
fn the_page_shows_the_current_program_of_each_recipe() {
    compare("docs/recipes.md", &with_programs(&read("docs/recipes.md")));
    let page = read("docs/recipes.md");
    for recipe in RECIPES {
        let folder = format!("recipes/src/{}/", recipe.name);
        assert!(page.contains(&folder), "the page does not name {folder}");
        let lines = recipe.files[1].lines().count();
        assert!(
            lines <= MAX_LINES,
            "{}/with_keylapse.rs has {lines} lines, more than {MAX_LINES}",
            recipe.name
        );
    }
    assert!(!page.contains("crate::stage"), "the page shows the test bench of the stories");
}

/// Returns the page with this text between a marker and the next `<!-- end -->`.
fn with_record(page: &str, marker: &str, text: &str) -> String {
    let (before, rest) = page.split_once(marker).expect("the marker before the figures");
    let (_, after) = rest.split_once("<!-- end -->").expect("the marker after the figures");
    format!("{before}{marker}{text}<!-- end -->{after}")
}

#[test]
fn the_figures_are_those_of_the_current_programs() {
    let record = Record::from_lines(&read("recipes/recorded.jsonl")).expect("a record");
    let played: Vec<_> = record.recipes.iter().map(|recorded| recorded.recipe.as_str()).collect();
    assert_eq!(played, RECIPES.iter().map(|recipe| recipe.name).collect::<Vec<_>>());
    for recorded in &record.recipes {
        assert!(
            recorded.is_current(),
            "{} has changed since it was recorded: run `make recipes-record`",
            recorded.recipe
        );
        assert_eq!(recorded.tale.complaints(), [""; 0], "{}", recorded.recipe);
    }
    for (path, marker, text) in [
        ("docs/comparison.md", "<!-- recorded: sums -->\n", record.sums_to_markdown()),
        ("docs/internals/benchmarks.md", "<!-- recorded: scenes -->\n", record.to_markdown()),
    ] {
        compare(path, &with_record(&read(path), marker, &text));
    }
}
