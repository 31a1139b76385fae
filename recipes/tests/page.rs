//! The pages show the programs as they are, and the figures of a run of these programs.
//!
//! `KEYLAPSE_BLESS=1 cargo test -p recipes --test recipes page` writes them anew; `make recipes-record` plays all recipes and
//! keeps what happened.

use std::fs;
use std::path::PathBuf;

use recipes::RECIPES;
use recipes::record::Record;

/// The most lines that a program on the page may have.
const LINES: usize = 84;

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", path].iter().collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The page is like this, or is made so.
fn compare(path: &str, meant: &str) {
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        fs::write(file(path), meant).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert!(read(path) == meant, "{path} is not what the programs say; see the top of this file");
}

/// The page with each block after a `<!-- file -->` line replaced by that file.
fn with_programs(page: &str) -> String {
    let mut parts = page.split("<!-- recipes/src/");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once(" -->\n```").expect("a block after the name of its file");
        let (language, rest) = rest.split_once('\n').expect("the block's first line");
        let program = read(&format!("recipes/src/{path}"));
        let after = rest.strip_prefix("```").or_else(|| rest.split_once("\n```").map(|(_, after)| after));
        let after = after.expect("the end of the block");
        whole.push_str(&format!("<!-- recipes/src/{path} -->\n```{language}\n{program}```{after}"));
    }
    whole
}

#[test]
fn the_page_shows_each_recipe_whole_and_none_is_long() {
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
        assert!(lines <= LINES, "{}/with_keylapse.rs has {lines} lines; a page takes {LINES}", recipe.name);
    }
}

#[test]
fn the_figures_are_of_these_programs() {
    let record = Record::from_lines(&read("recipes/recorded.jsonl")).expect("a record");
    let played: Vec<_> = record.recipes.iter().map(|recorded| recorded.recipe.as_str()).collect();
    assert_eq!(played, RECIPES.iter().map(|recipe| recipe.name).collect::<Vec<_>>());
    for recorded in &record.recipes {
        assert!(
            recorded.is_current(),
            "{} has changed since it was recorded: make recipes-record",
            recorded.recipe
        );
        assert_eq!(recorded.tale.complaints(), [""; 0], "{}", recorded.recipe);
    }
    let page = read("docs/comparison.md");
    let (before, rest) = page.split_once("<!-- recorded -->\n").expect("where the figures begin");
    let (_, after) = rest.split_once("<!-- end -->").expect("where the figures end");
    let meant = format!("{before}<!-- recorded -->\n{}<!-- end -->{after}", record.to_markdown());
    compare("docs/comparison.md", &meant);
}
