//! What the documentation says of our tests is true, and what it says of others has a source.

mod facts;
pub(crate) mod links;
mod messages;
mod named;
mod walks;
mod words;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns a file of the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(crate::REPOSITORY).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A word in backticks with this many underscores is a test's name.
const UNDERSCORES: usize = 3;

#[test]
fn each_test_that_a_page_names_exists() {
    let root = Path::new(crate::REPOSITORY);
    let folders = ["src", "crates", "tests"];
    let functions = functions(&folders.map(|folder| root.join(folder)));
    for (path, at_least) in [("docs/internals/reliability.md", 100), ("SECURITY.md", 20)] {
        let page = read(path);
        let missing: Vec<_> = names(&page).filter(|name| !functions.contains(*name)).collect();
        assert_eq!(missing, [""; 0], "{path} names tests that do not exist");
        assert!(names(&page).count() >= at_least, "{path} names its tests");
    }
}

/// In the tables of features, all columns but the first two are about others.
#[test]
fn each_cell_of_the_comparison_has_a_source() {
    let page = read("docs/comparison.md");
    let (text, sources) = split_off_sources(&page);
    let (_, features) = text.split_once("\n## Features\n").expect("the features");
    let (features, _) = features.split_once("\n## ").expect("what comes after them");
    for table in features.split("\n\n").filter(|block| block.starts_with('|')) {
        let (head, rows) = table.split_once('\n').expect("rows");
        for row in rows.lines() {
            assert_eq!(cells(row).len(), cells(head).len(), "{row}");
        }
        for row in rows.lines().skip(1) {
            let without = cells(row).into_iter().skip(2).find(|cell| references(cell).next().is_none());
            assert_eq!(without, None, "a cell without a source: {row}");
        }
    }
    let named: HashSet<_> = references(&text).collect();
    assert_eq!(named, sources.keys().copied().collect(), "sources that are named, and those that there are");
    for url in sources.values() {
        assert!(url.starts_with("https://") && !url.contains(char::is_whitespace), "{url}");
    }
}

/// A page without its lines `[label]: address`, and these.
fn split_off_sources(page: &str) -> (String, HashMap<&str, &str>) {
    let text = page.lines().filter(|line| source(line).is_none());
    (text.collect::<Vec<_>>().join("\n"), page.lines().filter_map(source).collect())
}

fn source(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ")
}

/// The labels in `[text][label]`.
fn references(text: &str) -> impl Iterator<Item = &str> {
    text.split("][").skip(1).filter_map(|rest| rest.split(']').next())
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').collect()
}

/// Names of tests, with or without the path of their module.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split('`').skip(1).step_by(2);
    let last = quoted.map(|quoted| quoted.rsplit("::").next().unwrap_or(quoted));
    last.filter(|word| word.matches('_').count() >= UNDERSCORES).filter(|word| {
        word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    })
}

/// All functions, and names that a list gives to functions: the model's rules are listed in macros.
fn functions(folders: &[PathBuf]) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut left = folders.to_vec();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
    }
    found
}
