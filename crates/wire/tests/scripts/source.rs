//! The files in src/scripts, and their headers.

use std::collections::BTreeMap;
use std::{fs, path::Path};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts");
const FIELDS: [&str; 8] = ["Purpose", "Parts", "Flags", "KEYS", "ARGV", "Returns", "Errors", "Invariants"];

/// The orders in which parts follow each other; each needs those before it.
pub(crate) const CHAINS: [[&str; 4]; 2] = [
    ["prelude", "timers", "queued_timers", "dead_letters"],
    ["prelude", "timers", "queued_timers", "expiry_history"],
];
/// A part that needs none of these but a clock, and may stand anywhere behind `timers`.
pub(crate) const MARKERS: &str = "markers";
/// A part that needs `timers`, and may stand anywhere behind it.
pub(crate) const TAIL_JOURNAL: &str = "tail_journal";
/// The line of a body in whose place its parts stand, all but the prelude.
const PARTS_GO_HERE: &str = "-- Parts are inserted here.";

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Without `.lua`.
    pub(crate) name: String,
    /// The comment at its beginning, as it stands.
    pub(crate) header: String,
    /// The fields of the header in their order, each on one line.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// What follows the header, without comments.
    pub(crate) code: String,
    /// What of this stands before the parts, where a line says so.
    pub(crate) ahead: Option<String>,
}

/// Numbers of KEYS or ARGV, and what each is.
pub(crate) type Numbered = BTreeMap<u32, String>;

impl Source {
    /// All files, by name.
    pub(crate) fn all() -> BTreeMap<String, Self> {
        let files = fs::read_dir(FOLDER).expect("the folder of scripts");
        let files = files.map(|file| Self::read(&file.expect("a file").path()));
        files.map(|source| (source.name.clone(), source)).collect()
    }

    /// Those that are scripts of their own.
    pub(crate) fn bodies() -> impl Iterator<Item = Self> {
        Self::all().into_values().filter(|source| !source.is_part())
    }

    fn read(path: &Path) -> Self {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("a text");
        let is_comment = |line: &&str| line.starts_with("--");
        let header: Vec<_> = text.lines().take_while(is_comment).collect();
        let lines: Vec<_> = text.lines().skip_while(is_comment).collect();
        let code =
            |lines: &[&str]| lines.iter().map(|line| without_comment(line)).collect::<Vec<_>>().join("\n");
        let stand = lines.iter().position(|line| *line == PARTS_GO_HERE);
        let said = text.matches(PARTS_GO_HERE).count();
        assert_eq!(
            said,
            usize::from(stand.is_some()),
            "{name} says once where its parts stand, or not at all"
        );
        let ahead = stand.map(|at| code(&lines[..at]));
        let fields = fields(&header);
        Self { name, header: header.join("\n"), fields, code: code(&lines), ahead }
    }

    /// A part is put before the body of scripts that name it, or into it.
    pub(crate) fn is_part(&self) -> bool {
        self.field("Flags").is_none()
    }

    /// The parts that stand before it.
    pub(crate) fn before(&self) -> Vec<&str> {
        if !self.is_part() {
            return self.words("Parts");
        }
        if self.name == MARKERS {
            return Vec::new();
        }
        if self.name == TAIL_JOURNAL {
            return vec!["prelude", "timers"];
        }
        let chain = CHAINS.iter().find(|chain| chain.contains(&self.name.as_str())).expect("a chain");
        chain.iter().copied().take_while(|part| *part != self.name).collect()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, text)| text.as_str())
    }

    /// The words of a list, without what is in parentheses.
    pub(crate) fn words(&self, field: &str) -> Vec<&str> {
        let words = self.field(field).unwrap_or_default().split(", ");
        words.filter(|word| !word.is_empty() && !word.starts_with('(')).collect()
    }

    /// `1 meta, 2 due` and so on; what varies in number is not numbered.
    pub(crate) fn numbered(&self, field: &str) -> Numbered {
        let numbered = |item: &str| {
            let (number, what) = item.split_once(' ')?;
            Some((number.parse().ok()?, what.split(';').next()?.to_owned()))
        };
        self.field(field).unwrap_or_default().split(", ").filter_map(numbered).collect()
    }

    /// The code that runs: of the parts that the header names, and its own.
    pub(crate) fn whole(&self) -> String {
        let all = Self::all();
        let parts = self.words("Parts").into_iter().map(|part| all[part].code.as_str());
        parts.chain([self.code.as_str()]).collect::<Vec<_>>().join("\n")
    }
}

/// `-- Field: text` or `-- KEYS text`, continued in lines that are indented.
fn fields(header: &[&str]) -> Vec<(&'static str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in header.iter().skip(1) {
        let line = line.trim_start_matches("--");
        let begins = |field: &&&str| line.strip_prefix(' ').is_some_and(|text| text.starts_with(**field));
        match (FIELDS.iter().find(begins), fields.last_mut()) {
            (Some(field), _) => {
                let text = line[field.len() + 1..].trim_start_matches(':').trim();
                fields.push((field, text.to_owned()));
            }
            (None, Some((_, text))) => *text = format!("{text} {}", line.trim()).trim().to_owned(),
            (None, None) => assert!(line.trim().is_empty(), "{line:?} belongs to no field"),
        }
    }
    fields
}

fn without_comment(line: &str) -> &str {
    // No string in the scripts holds two dashes; a test would show it.
    line.split("--").next().unwrap_or_default().trim_end()
}

#[test]
fn a_header_is_read_field_by_field() {
    let claim = &Source::all()["claim"];
    assert!(!claim.is_part() && Source::all()["prelude"].is_part());
    assert_eq!(claim.words("Parts"), ["prelude", "timers", "tail_journal", "queued_timers", "dead_letters"]);
    assert_eq!(claim.numbered("KEYS")[&10], "claimers");
    assert_eq!(claim.numbered("ARGV")[&8], "how many at most (1,000)");
    assert_eq!(claim.numbered("ARGV").len(), 15);
    assert!(claim.code.contains("meta[3]") && !claim.code.contains("--"));
    let ahead = |name: &str| Source::all()[name].ahead.clone();
    assert_eq!(ahead("claim"), None);
    assert!(ahead("arm").is_some_and(|code| code.contains("deadline_of(") && !code.contains("set_marker(")));
    assert_eq!(ahead("delete_marker").as_deref().map(str::trim), Some(""));
}
