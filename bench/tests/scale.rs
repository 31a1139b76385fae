//! docs/internals/benchmarks.md shows the record and the calculation from it.
//!
//! `KEYLAPSE_BLESS=1 cargo test -p keylapse-bench --test bench scale` writes the page again. `make bench OF=scale-record`
//! measures first.

use std::fs;
use std::path::PathBuf;

use keylapse_bench::scale::{Goal, Record, markdown};

fn file(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", path].iter().collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_page_shows_what_was_recorded_and_what_follows_from_it() {
    let record: Record = serde_json::from_str(&read("bench/scale/recorded.json")).expect("a record");
    let page = read("docs/internals/benchmarks.md");
    let (before, rest) = page.split_once("<!-- recorded -->\n").expect("where the figures begin");
    let (_, after) = rest.split_once("<!-- end -->").expect("where the figures end");
    let figures = markdown::page(&record, &Goal::default()).expect("all figures");
    let meant = format!("{before}<!-- recorded -->\n{figures}<!-- end -->{after}");
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        fs::write(file("docs/internals/benchmarks.md"), &meant).expect("the page is written");
    }
    assert!(
        read("docs/internals/benchmarks.md") == meant,
        "docs/internals/benchmarks.md does not show the record: the top of this file has the command that writes it"
    );
}
