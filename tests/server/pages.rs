//! What the documentation says of our tests is true.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A word in backticks with this many underscores is a test's name.
const UNDERSCORES: usize = 3;

#[test]
fn each_test_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests"];
    let functions = functions(&folders.map(|folder| root.join(folder)));
    for (path, at_least) in [("docs/reliability.md", 100), ("SECURITY.md", 20)] {
        let page = fs::read_to_string(root.join(path)).expect("the page");
        let missing: Vec<_> = names(&page).filter(|name| !functions.contains(*name)).collect();
        assert_eq!(missing, [""; 0], "{path} names tests that do not exist");
        assert!(names(&page).count() >= at_least, "{path} names its tests");
    }
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
            let text = fs::read_to_string(&path).expect("a source");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
    }
    found
}
