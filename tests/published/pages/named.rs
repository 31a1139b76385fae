//! Pages name files and targets of make that exist.

use std::collections::BTreeSet;
use std::path::Path;

use super::links::{pages_of_the_repository, split_at_fences};
use super::read;

/// Folders of the repository. A path in code font that begins with one of them is a file or a folder.
const FOLDERS: [&str; 10] = [
    "apps/",
    "bench/",
    "crates/",
    "docs/",
    "examples/",
    "fuzz/",
    "packaging/",
    "recipes/",
    "scripts/",
    "tests/",
];

/// Returns the code spans of a page and the lines of its programs.
fn code(page: &str) -> Vec<String> {
    let (prose, programs) = split_at_fences(page);
    let prose = prose.join("\n");
    let lines = programs.into_iter().map(|line| line.trim().trim_start_matches("$ ").to_owned());
    lines.chain(prose.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn each_file_that_a_page_names_exists() {
    let (mut missing, mut found) = (BTreeSet::new(), 0);
    for (name, page) in pages_of_the_repository() {
        for code in code(&page) {
            let words = code.split([' ', ',', '(', ')', '"', '\'']);
            let paths = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
            for path in paths.filter(|path| !path.contains(['<', '*', '{', '$', '…'])) {
                let path = path.split(['#', ':']).next().unwrap_or_default();
                found += 1;
                if !Path::new(crate::REPOSITORY).join(path).exists() {
                    missing.insert(format!("{name}: {path}"));
                }
            }
        }
    }
    assert_eq!(missing, BTreeSet::new(), "files that do not exist");
    assert!(found > 100, "{found} files are named");
}

#[test]
fn each_target_of_make_that_a_page_names_exists() {
    let makefile = read("Makefile");
    let targets: BTreeSet<_> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', '#', ' ']))
        .filter_map(|line| line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')))
        .flat_map(|(targets, _)| targets.split(' '))
        .collect();
    let (mut missing, mut found) = (BTreeSet::new(), 0);
    for (name, page) in pages_of_the_repository() {
        for code in code(&page) {
            let Some(rest) = code.strip_prefix("make ") else { continue };
            let rest = rest.replace('\n', " ");
            let targets_of = rest.split(' ').take_while(|word| !word.contains(['=', '#', '\\', '…']));
            for target in targets_of.filter(|word| !word.starts_with('-') && !word.is_empty()) {
                found += 1;
                if !targets.contains(target) {
                    missing.insert(format!("{name}: make {target}"));
                }
            }
        }
    }
    assert_eq!(missing, BTreeSet::new(), "targets that do not exist");
    assert!(found > 30, "{found} targets are named");
}
