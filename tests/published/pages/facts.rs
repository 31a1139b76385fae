//! A figure that several pages state is the one of the source, and no page denies a feature that exists.

use regex::Regex;

use super::links::pages_for_users;
use super::read;

/// A figure of the source, and the forms in which pages state it. The first group of each expression is the figure.
struct Fact {
    file: &'static str,
    source: &'static str,
    stated: &'static [&'static str],
    /// The pages state it at least this often.
    times: usize,
}

const FACTS: [Fact; 9] = [
    Fact {
        file: "src/topic/config.rs",
        source: r"lease: Duration::from_secs\((\d+)\)",
        stated: &[
            r"lease`?,?\s\((\d+) s\sby default\)",
            r"`Topic::lease`,?\s\(?(\d+) s",
            r"default of (\d+) s tolerates",
            r"lease ends, after (\d+) s by default",
        ],
        times: 6,
    },
    Fact {
        file: "src/topic/config.rs",
        source: r"timeout: Duration::from_secs\((\d+)\)",
        stated: &[r"`Topic::timeout` \((\d+) s\)"],
        times: 1,
    },
    Fact {
        file: "src/topic/config.rs",
        source: r"payload_limit: (\d+) << 10",
        stated: &[r"(\d+) KiB by default, and 8 MiB", r"the default is (\d+) KiB"],
        times: 2,
    },
    Fact {
        file: "src/topic/config.rs",
        source: r"max_snoozes: (\d+)",
        stated: &[r"`Topic::max_snoozes` \| ([\d,]+) "],
        times: 1,
    },
    Fact {
        file: "src/topic.rs",
        source: r"about (\d+) bytes and the key for each entry",
        stated: &[r"An entry takes about (\d+) bytes and its key"],
        times: 1,
    },
    Fact {
        file: "apps/cli/src/commands/serve.rs",
        source: r#"default_value = "127\.0\.0\.1:(\d+)""#,
        stated: &[
            r"http://127\.0\.0\.1:(\d+)/?>",
            r"`--listen ADDRESS` \| `127\.0\.0\.1:(\d+)`",
            r"default address `127\.0\.0\.1:(\d+)`",
        ],
        times: 4,
    },
    // The unit of systemd and all pages use one port for `keylapse run`, which is not that of `keylapse serve`.
    Fact {
        file: "packaging/keylapse.service",
        source: r"keylapse run .*--listen 127\.0\.0\.1:(\d+)",
        stated: &[r"keylapse run [^\n`]*--listen 127\.0\.0\.1:(\d+)"],
        times: 4,
    },
    Fact {
        file: "Cargo.toml",
        source: r#"rust-version = "([\d.]+)""#,
        stated: &[r"Rust (1\.\d+)", r"Rust version is (1\.\d+)"],
        times: 2,
    },
    Fact {
        file: "crates/wire/src/names.rs",
        source: r"WIRE_VERSION: \w+ = (\d+)",
        stated: &[r"wire version\]\(internals/wire\.md#versions\) stays (\d+)"],
        times: 1,
    },
];

#[test]
fn each_figure_of_several_pages_is_that_of_the_source() {
    let pages = pages_for_users();
    for Fact { file, source, stated, times } in FACTS {
        let text = read(file);
        let figure =
            &Regex::new(source).unwrap().captures(&text).unwrap_or_else(|| panic!("{file}: {source}"))[1];
        let mut found = 0;
        for form in stated {
            let form = Regex::new(form).unwrap();
            for (name, page) in &pages {
                for captures in form.captures_iter(page) {
                    found += 1;
                    let on_page = captures[1].replace(',', "");
                    assert_eq!(on_page, figure, "{name}, `{}`, and {file}", &captures[0]);
                }
            }
        }
        assert!(found >= times, "{source} of {file}: the pages state it {found} times");
    }
}

/// A command of the program, and the words by which a page could deny what it does.
const FEATURES: [(&str, &str); 10] = [
    ("serve", "dashboard|user interface|web interface|browser"),
    ("run", "webhooks?|other languages|another language|listener in Python"),
    ("ls", "list of (all )?timers|listing of timers"),
    ("dead", "program for (this|dead letters)|replays?|way to replay"),
    ("top", "live view|terminal view"),
    ("tail", "live tail"),
    ("journal", "journal of ended timers"),
    ("export", "exports?|backup command"),
    ("doctor", "diagnosis"),
    ("completions", "shell completions?"),
];

/// Returns expressions that deny this feature, in a sentence or in a cell of a table.
fn denials(words: &str) -> Regex {
    let denial = format!(
        r"(?i)\b((there is|has|have|offers) no|(without|lacks) (a|any)) ({words})\b|\bno ({words}) (yet|so far)|({words})\b[^.|]{{0,30}}\b(is|are) not (available|supported|there)|\*\*({words})\*\* \| none\b|only the one in Rust"
    );
    Regex::new(&denial).unwrap()
}

/// Sentences that deny nothing of keylapse: another tool lacks the feature, or it is off.
const RIGHT: [&str; 1] = ["without a journal"];

#[test]
fn no_page_denies_a_feature_of_the_program() {
    let reference = read("docs/cli-reference.md");
    let pages: Vec<_> =
        pages_for_users().into_iter().map(|(name, page)| (name, page.replace('\n', " "))).collect();
    for (command, words) in FEATURES {
        assert!(
            reference.contains(&format!("\n## keylapse {command}\n")),
            "the program has no command {command}"
        );
        let denial = denials(words);
        for (name, page) in &pages {
            let denied = denial.find_iter(page).map(|found| found.as_str());
            let wrong: Vec<_> = denied.filter(|found| !RIGHT.contains(found)).collect();
            assert_eq!(wrong, [""; 0], "{name} denies `keylapse {command}`");
        }
    }
}

/// The statements that pages once had, long after the features came.
#[test]
fn a_denial_is_found_in_each_form() {
    for (command, denied) in [
        ("ls", "There is no list of all timers yet."),
        ("run", "Of listeners there is only the one in Rust."),
        ("dead", "There is no program for this yet."),
        ("serve", "| **User interface** | None | Web |"),
        ("serve", "keylapse has no dashboard."),
    ] {
        let words = FEATURES.iter().find(|(name, _)| *name == command).unwrap().1;
        assert!(denials(words).is_match(denied), "{denied}");
    }
    assert!(
        !denials(FEATURES[0].1)
            .is_match("Redisson has a browser for this, and the dashboard is in the browser.")
    );
}
