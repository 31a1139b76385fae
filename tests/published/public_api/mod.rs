//! What programs can name of keylapse, one line each, in `docs/public-api.txt`.
//!
//! The list is read from the source, so that stable Rust is enough: modules, re-exports and the
//! crate's own `macro_rules` are followed as the compiler does; types stand as the source spells
//! them, and what is inherited from the compiler (`Send`, blanket implementations) is not listed.

mod attributes;
mod difference;
mod exports;
mod impls;
mod items;
mod listing;
mod macro_rules;
mod modules;
mod names;
mod spelling;

use std::path::Path;

const LIST: &str = "docs/public-api.txt";
const BLESS: &str = "KEYLAPSE_BLESS";

#[test]
fn the_public_api_is_the_one_that_is_written_down() {
    let root = Path::new(crate::REPOSITORY);
    let found = listing::Listing::of(&root.join("src/lib.rs")).text();
    let list = root.join(LIST);
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&list, found).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&list).unwrap_or_default();
    let difference = difference::between(&written, &found);
    assert!(
        difference.is_empty(),
        "the public API is not what {LIST} says:\n{difference}\n\
         If that is meant, this writes it down, and CHANGELOG.md tells users:\n    \
         {BLESS}=1 cargo test -p keylapse-tests-published public_api"
    );
}
