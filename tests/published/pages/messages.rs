//! docs/messages.md has each warning and error of the log and each kind of error, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::read;

const PAGE: &str = "docs/messages.md";

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    text: String,
    level: String,
}

#[test]
fn each_warning_and_error_stands_on_the_page_and_each_line_there_exists() {
    let (said, listed) = (lines_of_source(), lines_of_page());
    let unknown: Vec<_> =
        said.iter().filter(|line| line.level != "info" && !listed.iter().any(|one| is(line, one))).collect();
    assert!(unknown.is_empty(), "docs/messages.md lacks {unknown:#?}");
    let invented: Vec<_> = listed.iter().filter(|one| !said.iter().any(|line| is(line, one))).collect();
    assert!(invented.is_empty(), "docs/messages.md has what no source says: {invented:#?}");
    assert!(said.len() > 60, "{} lines were found", said.len());
}

/// Whether this line is the one that the page shows, where the end may be left out.
fn is(line: &Line, shown: &Line) -> bool {
    let same = match shown.text.strip_suffix('…') {
        Some(beginning) => line.text.starts_with(beginning),
        None => line.text == shown.text,
    };
    same && line.level == shown.level
}

#[test]
fn each_kind_of_error_stands_on_the_page() {
    let source = read("crates/connection/src/error.rs");
    let (_, kinds) = source.split_once("pub enum ErrorKind {").expect("the kinds");
    let (kinds, _) = kinds.split_once("\n}").expect("their end");
    let kinds = kinds.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(','));
    let page = read(PAGE);
    let (_, page) = page.split_once("\n## Kinds of errors\n").expect("their section");
    let listed: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`: "))
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(
        listed,
        kinds.collect(),
        "the kinds of errors on docs/messages.md, and in crates/connection/src/error.rs"
    );
}

fn root() -> PathBuf {
    PathBuf::from(crate::REPOSITORY)
}

/// What stands there as `` `text` (level) ``, also beyond the end of a line.
fn lines_of_page() -> BTreeSet<Line> {
    let page = read(PAGE).split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted: Vec<_> = page.split('`').collect();
    let pairs = quoted.windows(2).skip(1).step_by(2);
    let lines = pairs.filter_map(|pair| {
        let (level, _) = pair[1].strip_prefix(" (")?.split_once(')')?;
        let level = ["info", "warn", "error"].into_iter().find(|one| *one == level)?;
        Some(Line { text: pair[0].to_owned(), level: level.to_owned() })
    });
    lines.collect()
}

/// Of all lines of the library its text, but for those of tests and of the test kit.
fn lines_of_source() -> BTreeSet<Line> {
    let (mut found, mut left) = (BTreeSet::new(), vec![root().join("src"), root().join("crates")]);
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path());
            left.extend(entries.filter(|entry| !is_for_tests(entry)));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = read(&path);
            collect(TokenStream::from_str(&source).expect("Rust"), &mut found);
        }
    }
    found
}

fn is_for_tests(path: &Path) -> bool {
    ["tests", "testing", "testserver"].iter().any(|name| path.ends_with(name))
}

/// The last text in the brackets of `warn!(…)` and of what passes it on; anywhere but in `mod tests`.
fn collect(tokens: TokenStream, found: &mut BTreeSet<Line>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let before = |back: usize| at.checked_sub(back).map(|at| tokens[at].to_string()).unwrap_or_default();
        if before(1) == "tests" && before(2) == "mod" {
            continue;
        }
        let level = match (before(2).as_str(), before(1).as_str()) {
            (level @ ("info" | "warn" | "error"), "!") => Some(level.to_owned()),
            (_, "report_failure") => Some("warn".to_owned()),
            _ => None,
        };
        let text = level
            .as_ref()
            .filter(|_| group.delimiter() == Delimiter::Parenthesis)
            .and_then(|_| last_text(group.stream()));
        if let (Some(level), Some(text)) = (level, text.filter(|text| !text.starts_with('{'))) {
            found.insert(Line { text, level });
        }
        collect(group.stream(), found);
    }
}

fn last_text(tokens: TokenStream) -> Option<String> {
    let texts = tokens.into_iter().filter_map(|token| syn::parse2::<syn::LitStr>(token.into()).ok());
    texts.last().map(|text| text.value())
}
