//! docs/cli-reference.md has the long help of each command.
//!
//! `KEYLAPSE_BLESS=1 cargo test -p keylapse-cli reference` writes the page.

use std::fmt::Write;
use std::path::Path;

use clap::Command;

use super::{GROUPS, command};

/// The page up to its first section.
const HEAD: &str = "\
# Command reference

`keylapse help COMMAND` prints the help of a command. The options under `Connection and output` work with each command, and
only the first section lists them. [The command line](cli.md) is a tour with examples. [JSON lines](json-lines.md)
describes the output of `--json`.
";
/// The heading of the options that all commands share. They are the last options of each command.
const SHARED: &str = "\n\nConnection and output:\n";
/// The width of the help, as on a wide terminal.
const WIDTH: usize = 100;

/// Returns the page, with a section for the program and for each command in the order of the help.
fn page() -> String {
    let mut program = command().term_width(WIDTH);
    // This names the program in each usage, and gives the shared options to each command.
    program.build();
    let mut page = HEAD.to_owned();
    add_section(&mut page, "keylapse", &help_of(&program));
    for name in GROUPS.iter().flat_map(|(_, names)| *names) {
        let command = program.find_subcommand(name).expect("a command");
        add_command(&mut page, &format!("keylapse {name}"), command);
    }
    page
}

/// Adds the section of a command, and then those of its own commands.
fn add_command(page: &mut String, name: &str, command: &Command) {
    let help = help_of(command);
    let (own, shared) = help.split_once(SHARED).unwrap_or_else(|| panic!("{name} lacks{SHARED}{help}"));
    let is_last = shared.lines().all(|line| line.is_empty() || line.starts_with(' '));
    assert!(is_last, "{name} has something after the shared options: {help}");
    add_section(page, name, own);
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        add_command(page, &format!("{name} {}", inner.get_name()), inner);
    }
}

fn add_section(page: &mut String, name: &str, help: &str) {
    _ = write!(page, "\n## {name}\n\n```text\n{help}\n```\n");
}

/// Returns the long help without values of this process's environment, and without spaces at the ends of lines.
fn help_of(command: &Command) -> String {
    let help = command.clone().mut_args(|arg| arg.hide_env_values(true)).render_long_help().to_string();
    help.trim().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_has_the_help_of_each_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli-reference.md");
    let expected = page();
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        std::fs::write(&path, &expected).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page");
    assert!(
        page == expected,
        "docs/cli-reference.md is out of date: KEYLAPSE_BLESS=1 cargo test -p keylapse-cli reference writes it"
    );
}
