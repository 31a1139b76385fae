//! Two sorted lists, compared line by line.

use std::collections::BTreeSet;

/// What was and is not (`-`), and what is and was not (`+`); empty where the lists are equal.
pub(crate) fn between(before: &str, now: &str) -> String {
    let (old, new) = (lines(before), lines(now));
    let gone = old.difference(&new).map(|line| (line, '-'));
    let come = new.difference(&old).map(|line| (line, '+'));
    let mut both: Vec<_> = gone.chain(come).collect();
    both.sort();
    both.iter().map(|(line, sign)| format!("{sign} {line}\n")).collect()
}

fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}
