//! The items of keylapse that programs can name, one line each, in `tests/published/public-api.txt`.
//!
//! The list is read from the source, so that stable Rust is enough: modules, re-exports, also from one crate of the
//! repository to another, and the crates' own `macro_rules` are followed as the compiler does; types stand as the source
//! spells them, and what is inherited from the compiler (`Send`, blanket implementations) is not listed.

mod lines;
mod listing;
mod macro_rules;
mod names;
mod source;

use std::collections::BTreeSet;
use std::path::Path;

use self::listing::Listing;

/// The crates that programs depend on, with their root files. All that they name is listed.
const LISTED: [(&str, &str); 3] = [
    ("keylapse", "src/lib.rs"),
    ("keylapse_console", "crates/console/src/lib.rs"),
    ("keylapse_testing", "crates/testing/src/lib.rs"),
];

/// The crates whose items the others pass on. Only what is passed on is listed.
const INNER: [(&str, &str); 3] = [
    ("keylapse_pattern", "crates/pattern/src/lib.rs"),
    ("keylapse_connection", "crates/connection/src/lib.rs"),
    ("keylapse_wire", "crates/wire/src/lib.rs"),
];

const LIST: &str = "tests/published/public-api.txt";
const BLESS: &str = "KEYLAPSE_BLESS";

#[test]
fn the_public_api_is_the_one_that_is_written_down() {
    let found = found();
    let list = Path::new(crate::REPOSITORY).join(LIST);
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&list, found).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&list).unwrap_or_default();
    let difference = difference(&written, &found);
    assert!(
        difference.is_empty(),
        "the public API is not what {LIST} says:\n{difference}\n\
         If that is meant, this writes it down, and CHANGELOG.md tells users:\n    \
         {BLESS}=1 cargo test -p keylapse-tests-published public_api"
    );
}

/// A reader finds one name for each thing, and few at the root; the others are in modules by subject.
#[test]
fn each_item_has_one_path_and_the_root_has_few() {
    let found = found();
    let paths = found.lines().filter_map(|line| line.split_once(" | "));
    let again: Vec<_> = paths.clone().filter(|(_, text)| text.starts_with("pub use keylapse::")).collect();
    assert!(again.is_empty(), "{again:#?}");
    let at_the_root: BTreeSet<_> =
        paths.filter(|(path, _)| path.matches("::").count() == 1).map(|(path, _)| path).collect();
    let at_the_root: Vec<_> = at_the_root.into_iter().filter(|path| path.starts_with("keylapse::")).collect();
    assert!((30..=45).contains(&at_the_root.len()), "{}: {at_the_root:#?}", at_the_root.len());
}

fn found() -> String {
    let modules = source::read(Path::new(crate::REPOSITORY), LISTED.into_iter().chain(INNER));
    Listing::of(modules, LISTED.map(|(name, _)| name)).text()
}

/// What was and is not (`-`), and what is and was not (`+`); empty where the lists are equal.
fn difference(before: &str, now: &str) -> String {
    let (old, new) = (lines_of(before), lines_of(now));
    let gone = old.difference(&new).map(|line| (line, '-'));
    let come = new.difference(&old).map(|line| (line, '+'));
    let mut both: Vec<_> = gone.chain(come).collect();
    both.sort();
    both.iter().map(|(line, sign)| format!("{sign} {line}\n")).collect()
}

fn lines_of(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}
