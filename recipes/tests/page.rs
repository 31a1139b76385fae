//! docs/recipes.md has the current programs, and docs/comparison.md has the recorded results of these programs.
//!
//! `KEYLAPSE_BLESS=1 cargo test -p recipes --test recipes page` updates both pages. `make recipes-record` runs all recipes
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

/// Returns the page with the current file in each block after a `<!-- file -->` line.
fn with_programs(page: &str) -> String {
    let mut parts = page.split("<!-- recipes/src/");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once(" -->\n```").expect("a code block after the name of its file");
        let (language, rest) = rest.split_once('\n').expect("the first line of the code block");
        let program = read(&format!("recipes/src/{path}"));
        let after = rest.strip_prefix("```").or_else(|| rest.split_once("\n```").map(|(_, after)| after));
        let after = after.expect("the end of the code block");
        whole.push_str(&format!("<!-- recipes/src/{path} -->\n```{language}\n{program}```{after}"));
    }
    whole
}

#[test]
fn the_page_shows_the_current_program_of_each_recipe() {
    compare("docs/recipes.md", &with_programs(&read("docs/recipes.md")));
    let page = read("docs/recipes.md");
    for recipe in RECIPES {
        assert!(page.contains(&format!("\n## {}\n", recipe.name)), "{} has no heading", recipe.name);
        assert!(
            page.contains(&format!("<!-- recipes/src/{}/with_keylapse.rs -->", recipe.name)),
            "{}",
            recipe.name
        );
        let lines = recipe.files[1].lines().count();
        assert!(
            lines <= MAX_LINES,
            "{}/with_keylapse.rs has {lines} lines, more than {MAX_LINES}",
            recipe.name
        );
    }
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
    let page = read("docs/comparison.md");
    let (before, rest) = page.split_once("<!-- recorded -->\n").expect("the marker before the figures");
    let (_, after) = rest.split_once("<!-- end -->").expect("the marker after the figures");
    let expected = format!("{before}<!-- recorded -->\n{}<!-- end -->{after}", record.to_markdown());
    compare("docs/comparison.md", &expected);
}
