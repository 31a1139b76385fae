//! The help of the program itself: commands in groups, and the command that answers each question.

use std::fmt::Write;

use clap::builder::styling::Styles;
use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The groups of commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Look",
        &["status", "topics", "listeners", "destinations", "top", "ls", "show", "why", "journal", "tail"],
    ),
    (
        "Act",
        &[
            "arm",
            "cancel",
            "reschedule",
            "run-now",
            "dead",
            "pause",
            "resume",
            "partitions",
            "destroy",
            "detach",
        ],
    ),
    ("Keep in order", &["doctor", "check", "verify", "attach", "export", "import"]),
    ("Run", &["run", "serve", "health", "completions", "man"]),
];

/// The questions that commands with similar names answer.
const QUESTIONS: [(&str, &str); 6] = [
    ("doctor", "Are the servers set up for keylapse, and what fixes them?"),
    ("check", "Is a topic beyond a limit? The exit code answers probes and alerts."),
    ("verify", "Do the index and the records of the topics agree?"),
    ("health", "Is this process of `run` or `serve` ready?"),
    ("show", "What is stored for this key?"),
    ("why", "Why does this key's timer not run, or why did it run?"),
];

const NAME_WIDTH: usize = 12;

/// Returns the command line that the program parses.
///
/// clap has no groups of commands. So the template of the help lists them, and clap's own list is hidden.
pub(crate) fn command() -> Command {
    let styles = Styles::default();
    let (heading, name) = (styles.get_header(), styles.get_literal());
    let command = Cli::command();
    let mut groups = String::new();
    for (group, names) in GROUPS {
        _ = writeln!(groups, "{heading}{group}:{heading:#}");
        for one in names {
            let about =
                command.find_subcommand(one).and_then(Command::get_about).cloned().unwrap_or_default();
            _ = writeln!(groups, "  {name}{one:NAME_WIDTH$}{name:#}  {about}");
        }
        groups.push('\n');
    }
    let mut questions = format!("{heading}Which command answers which question:{heading:#}\n");
    for (one, question) in QUESTIONS {
        _ = writeln!(questions, "  {name}{one:NAME_WIDTH$}{name:#}  {question}");
    }
    command
        .mut_subcommands(|command| command.hide(true))
        .override_usage("keylapse [OPTIONS] <COMMAND>")
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}"
        ))
        .after_help("`keylapse --help` shows all options; `keylapse help COMMAND` explains one.")
        .after_long_help(questions.trim_end().to_owned())
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Cli::command();
        let all: BTreeSet<_> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(listed.len(), all.len());
        assert!(QUESTIONS.iter().all(|(one, _)| all.contains(one)));
        assert!(listed.iter().all(|one| one.len() <= NAME_WIDTH));
    }

    #[test]
    fn the_page_has_the_same_questions() {
        let rows = QUESTIONS.map(|(one, question)| format!("| `{one}` | {question} |\n")).concat();
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/troubleshooting.md");
        let page = std::fs::read_to_string(page).expect("the page");
        assert!(page.contains(&rows), "docs/troubleshooting.md needs:\n{rows}");
    }

    #[test]
    fn the_short_help_fits_a_screen() {
        let help = command().term_width(80).render_help().to_string();
        assert!(help.lines().count() <= 52, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert!(help.contains("\nAct:\n  arm ") && !help.contains("--tls-ca"), "{help}");
    }

    #[test]
    fn the_long_help_has_all_options_and_the_questions() {
        let help = command().render_long_help().to_string();
        assert!(help.contains("--tls-ca") && help.contains("\n  verify        Do the index"), "{help}");
    }
}
