//! Prints results to standard output, and everything else to standard error.

mod progress;
mod table;
mod time;

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use keylapse_console::{ActionResult, Cursor, UnreadableTopic, text};
use serde::Serialize;

pub(crate) use keylapse_console::format::{lateness, short, size};
pub(crate) use keylapse_console::{counted, show_count as count};
pub(crate) use keylapse_web::{moment, ms_of};

pub(crate) use self::progress::ProgressLine;
pub(crate) use self::table::{Column, Table};
pub(crate) use self::time::{ago, span, stalled, time_of_day};
use crate::args::Format;
use crate::exit::{CliError, Exit};

/// The version of the lines of JSON.
const VERSION: u32 = 1;

/// Returns the text, or `-` if there is none.
pub(crate) fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Prints results and messages.
pub(crate) struct Output {
    json: bool,
    out: AutoStream<io::Stdout>,
    err: AutoStream<io::Stderr>,
}

/// A line of JSON: version, type and fields.
#[derive(Serialize)]
struct JsonLine<'a, T> {
    v: u32,
    r#type: &'a str,
    #[serde(flatten)]
    fields: &'a T,
}

impl Output {
    pub(crate) fn new(format: &Format) -> Self {
        let choice = match format.color {
            clap::ColorChoice::Auto => None,
            clap::ColorChoice::Always => Some(ColorChoice::Always),
            clap::ColorChoice::Never => Some(ColorChoice::Never),
        };
        let out = choice.unwrap_or_else(|| AutoStream::choice(&io::stdout()));
        let err = choice.unwrap_or_else(|| AutoStream::choice(&io::stderr()));
        Self {
            json: format.json,
            out: AutoStream::new(io::stdout(), out),
            err: AutoStream::new(io::stderr(), err),
        }
    }

    /// Returns whether results are lines of JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether results may be coloured.
    pub(crate) fn has_colours(&self) -> bool {
        self.out.current_choice() != ColorChoice::Never
    }

    /// Returns whether standard input is a terminal, where a question can be answered.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal()
    }

    /// Prints a line of JSON.
    pub(crate) fn line(&mut self, kind: &str, fields: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(&JsonLine { v: VERSION, r#type: kind, fields });
        let line = line.map_err(|error| {
            CliError::Findings(format!("cannot write a line of type {kind} as JSON: {error}"))
        })?;
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Returns the stream of results, for commands that format them.
    pub(crate) fn stream(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// Prints a line of text.
    pub(crate) fn print_line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        Ok(writeln!(self.out, "{}", text.as_ref())?)
    }

    /// Prints a line to standard error.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// Prints why these topics cannot be read.
    pub(crate) fn unreadable(&mut self, topics: &[UnreadableTopic]) -> Result<(), CliError> {
        topics.iter().try_for_each(|topic| {
            if self.is_json() {
                return self.line("unreadable", topic);
            }
            self.print_line(format!(
                "! {}: it cannot be read: {}",
                short(&topic.name, 60),
                short(&topic.problem, 300)
            ))
        })
    }

    /// Prints the result of an action on a topic or on one of its keys.
    pub(crate) fn print_action_result(&mut self, mut done: ActionResult) -> Result<Exit, CliError> {
        // Lines of JSON do not have this field.
        done.deadline_ms = None;
        if self.is_json() {
            self.line("action_result", &done)?;
        } else {
            self.print_line(format!("{}: {}", done.key.as_ref().unwrap_or(&done.topic), done.message))?;
        }
        Ok(if done.done { Exit::Success } else { Exit::ProblemsFound })
    }

    /// Prints the option that continues after this cursor, quoted for a shell.
    pub(crate) fn note_rest(&mut self, cursor: &Cursor) {
        self.note(format!("there may be more: --after {}", text::quoted(&cursor.to_string())));
    }

    /// Prints a table.
    pub(crate) fn table(&mut self, table: &Table) -> Result<(), CliError> {
        Ok(writeln!(self.out, "{}", table.render())?)
    }

    /// Asks a question, and returns the line that was typed.
    pub(crate) fn ask(&mut self, question: &str) -> Result<String, CliError> {
        write!(self.err, "{question} ")?;
        self.err.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }

    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        Ok(self.out.flush()?)
    }

    /// Prints why a command failed, and returns the exit code.
    pub(crate) fn failed(&mut self, failed: &CliError) -> Exit {
        let exit = failed.exit();
        if exit != Exit::Success {
            self.note(format!("keylapse: {failed}"));
            failed.hint().into_iter().for_each(|hint| self.note(format!("hint: {hint}")));
        }
        exit
    }
}
