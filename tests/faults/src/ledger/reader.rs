//! Reading all ledgers of a run.

use std::fs;
use std::io;
use std::path::Path;

use super::Line;

/// The lines of all processes, by time.
///
/// # Errors
/// When a file cannot be read, or holds a line that is none. The last line of a file may be cut short: its
/// writer was killed in the middle of it.
pub fn read_all(folder: &Path) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = fs::read_to_string(&path)?;
            let (whole, _cut) = text.rsplit_once('\n').unwrap_or_default();
            for line in whole.lines() {
                let read = serde_json::from_str(line)
                    .map_err(|error| io::Error::other(format!("{}: {error}: {line}", path.display())))?;
                lines.push(read);
            }
        }
    }
    lines.sort_by_key(|line: &Line| line.at);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use crate::ledger::{Entry, Ledger, read_all};

    #[test]
    fn what_is_written_is_read_and_a_torn_last_line_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::open(folder.path()).expect("a ledger");
        ledger.write_at(7, Entry::CancelAsked { key: "a".to_owned() });
        ledger.write_at(5, Entry::Stalled { since: 3 });
        std::fs::write(folder.path().join("1.jsonl"), "{\"at\":1,\"pi").expect("a torn line");
        let lines = read_all(folder.path()).expect("lines");
        assert_eq!(lines.iter().map(|line| line.at).collect::<Vec<_>>(), [5, 7]);
        assert_eq!(lines[1].entry, Entry::CancelAsked { key: "a".to_owned() });
    }

    #[test]
    fn a_line_that_is_none_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("1.jsonl"), "nonsense\n").expect("a file");
        let error = read_all(folder.path()).expect_err("no line").to_string();
        assert!(error.contains("nonsense"), "{error}");
    }
}
