//! The ways through the code on ARCHITECTURE.md: each step is a call that the source has, and few files are opened.

use std::collections::BTreeSet;

use super::read;

/// The headings, and how many files a way may open.
const WALKS: [(&str, usize); 3] = [
    ("## The way of an arm", 11),
    ("## The way from a claim to its end", 14),
    ("## The way of an expired key of an attached topic", 12),
];

/// One row: the function that calls, the file that has it, and the same of the one that is called.
struct Step<'a> {
    caller: &'a str,
    file: &'a str,
    callee: &'a str,
    callee_file: &'a str,
}

/// The rows of the table under a heading: caller, its file, callee, its file.
fn steps<'a>(page: &'a str, heading: &str) -> Vec<Step<'a>> {
    let (_, walk) = page.split_once(heading).unwrap_or_else(|| panic!("{heading} is missing"));
    let walk = walk.split("\n## ").next().unwrap_or_default();
    let rows = walk.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('`').skip(1).step_by(2).collect::<Vec<_>>());
    cells
        .map(|cells| match cells[..] {
            [caller, file, callee, callee_file] => Step { caller, file, callee, callee_file },
            _ => panic!("{heading}: a row names a caller, its file, a callee and its file: {cells:?}"),
        })
        .collect()
}

/// The last part of a path: `retry` of `connection::retry`, `next` of `DeadlineTimer::next`.
fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The bodies of all functions with this name.
fn bodies<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let starts = source.match_indices("fn ").map(|(at, _)| at + 3);
    let named = starts.filter(|at| {
        let rest = source[*at..].strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    });
    let end = |at: usize| {
        let line = source[..at].rfind('\n').map_or(0, |line| line + 1);
        let indent = source[line..].len() - source[line..].trim_start_matches(' ').len();
        let closing = format!("\n{}}}\n", " ".repeat(indent));
        source[at..].find(&closing).map_or(source.len(), |length| at + length)
    };
    named.map(|at| &source[at..end(at)]).collect()
}

fn calls(body: &str, name: &str) -> bool {
    body.match_indices(name).any(|(at, _)| {
        let before = body[..at].chars().next_back();
        let after = body[at + name.len()..].chars().next();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_word(before) && !is_word(after)
    })
}

#[test]
fn each_step_of_a_way_is_a_call_of_the_source() {
    let page = read("ARCHITECTURE.md");
    for (heading, _) in WALKS {
        let steps = steps(&page, heading);
        assert!(steps.len() > 5, "{heading} has steps");
        for Step { caller, file, callee, callee_file } in steps {
            let callers = read(file);
            let bodies_of_caller = bodies(&callers, last(caller));
            assert!(!bodies_of_caller.is_empty(), "{heading}: {file} has no function {caller}");
            let is_called = bodies_of_caller.iter().any(|body| calls(body, last(callee)));
            assert!(is_called, "{heading}: {caller} in {file} does not call {callee}");
            let is_there = !bodies(&read(callee_file), last(callee)).is_empty();
            assert!(is_there, "{heading}: {callee_file} has no function {callee}");
        }
    }
}

#[test]
fn a_way_opens_few_files() {
    let page = read("ARCHITECTURE.md");
    for (heading, at_most) in WALKS {
        let steps = steps(&page, heading);
        let files: BTreeSet<_> = steps.iter().flat_map(|step| [step.file, step.callee_file]).collect();
        assert!(files.len() <= at_most, "{heading} opens {} files: {files:#?}", files.len());
    }
}
