//! Whether what was said is what a page shows.

use regex::Regex;

use crate::commands::scene::plain;

/// In place of this machine's and this run's, of the same length where a table is not to change.
pub(super) const HOST: &str = "shop-worker";
pub(super) const PID: &str = "4711";
pub(super) const ADDRESS: &str = "redis.shop:6379";

/// Whether both say the same: times, ids and widths are not looked at, and `…` is any number of lines.
pub(super) fn is_alike(shown: &str, said: &str) -> bool {
    let pattern: Vec<_> = normal(shown).lines().map(regex::escape).collect();
    let pattern =
        format!("^{}$", pattern.join("\n").replace("…\n", "(?s:.*\n)?").replace("\n…", "(?s:\n.*)?"));
    Regex::new(&pattern).expect("a pattern").is_match(normal(said).trim_end())
}

fn normal(text: &str) -> String {
    let text = text.replace(HOST, "HOST").replace(ADDRESS, "ADDRESS").replace(PID, "PID");
    let words = [
        (r"--after '([^']|'\\'')*'", "--after PLACE"),
        (r#"("[a-z_]*(ms|us|at|since)"): ?\d+"#, "$1:N"),
        (r"\b\d+\.\d+\.\d+\b", "VERSION"),
        (r"\b\d+\.\d+\b", "N"),
        (r"Redis|Valkey", "SERVER"),
        (r"\b\d+ (keys with a TTL|B, as the server estimates)", "N $1"),
        // More of them are made while the page is played on a busy machine.
        (r"\b\d+ of \d+ (attempts failed)", "N of N $1"),
    ];
    let text = words.iter().fold(plain(&text), |text, (pattern, word)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *word).into_owned()
    });
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_alike_differs_in_times_and_widths_only() {
    assert!(is_alike(
        "a  2026-11-25T09:00:00.000Z  in 3m\n…\nb 1",
        "a 2026-01-01T01:02:03.004Z in 15m\nx\ny\nb  1\n"
    ));
    assert!(is_alike("a\n…", "a\nb\nc\n") && is_alike("a\n…", "a\n"));
    assert!(is_alike("x --after 'a'", r"x --after 'a'\''b'\'''"), "a place may hold quotes");
    assert!(is_alike("11 of 11 attempts failed", "12 of 12 attempts failed"));
    assert!(!is_alike("a 1", "a 2") && !is_alike("a", "a\nb") && !is_alike("a\nb", "a"));
}
