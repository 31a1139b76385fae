//! What is written, and where: results on the standard output, all else on the other.

mod progress;
mod table;
mod time;

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use keylapse_console::{Cursor, Done, UnreadableTopic, text};
use serde::Serialize;

pub(crate) use keylapse_console::words::{lateness, short, size};
pub(crate) use keylapse_console::{counted, show_count as count};
pub(crate) use keylapse_web::{moment, ms_of};

pub(crate) use self::progress::Progress;
pub(crate) use self::table::{Column, Table};
pub(crate) use self::time::{ago, span, stalled, time_of_day};
use crate::args::Format;
use crate::exit::{Exit, Failed};

/// The version of the lines of JSON.
const VERSION: u32 = 1;

/// A text, or what stands in its place where there is none.
pub(crate) fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Where results go.
pub(crate) struct Output {
    json: bool,
    out: AutoStream<io::Stdout>,
    err: AutoStream<io::Stderr>,
}

/// A line of JSON: its version and type, and then its fields.
#[derive(Serialize)]
struct Line<'a, T> {
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

    /// Whether lines of JSON are wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether results may be coloured.
    pub(crate) fn has_colours(&self) -> bool {
        self.out.current_choice() != ColorChoice::Never
    }

    /// Whether somebody could be asked.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal()
    }

    /// A thing as a line of JSON.
    pub(crate) fn line(&mut self, kind: &str, fields: &impl Serialize) -> Result<(), Failed> {
        let line = serde_json::to_string(&Line { v: VERSION, r#type: kind, fields });
        let line =
            line.map_err(|error| Failed::Findings(format!("this cannot be written as JSON: {error}")))?;
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Where results are written, for what has a form of its own.
    pub(crate) fn stream(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// A line for people.
    pub(crate) fn say(&mut self, text: impl AsRef<str>) -> Result<(), Failed> {
        Ok(writeln!(self.out, "{}", text.as_ref())?)
    }

    /// A line beside the results.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// Why these topics cannot be read.
    pub(crate) fn unreadable(&mut self, topics: &[UnreadableTopic]) -> Result<(), Failed> {
        topics.iter().try_for_each(|topic| {
            if self.is_json() {
                return self.line("unreadable", topic);
            }
            self.say(format!(
                "! {}: it cannot be read: {}",
                short(&topic.name, 60),
                short(&topic.problem, 300)
            ))
        })
    }

    /// What was done to a topic, or to something of one of its keys.
    pub(crate) fn did(&mut self, mut done: Done) -> Result<Exit, Failed> {
        // Lines of JSON have no field for it.
        done.deadline_ms = None;
        if self.is_json() {
            self.line("did", &done)?;
        } else {
            self.say(format!("{}: {}", done.key.as_ref().unwrap_or(&done.topic), done.says))?;
        }
        Ok(if done.was_done { Exit::Fine } else { Exit::Findings })
    }

    /// Where what has been left out begins, as it is to be said to a shell.
    pub(crate) fn note_rest(&mut self, cursor: &Cursor) {
        self.note(format!("there may be more: --after {}", text::quoted(&cursor.to_string())));
    }

    /// A table for people.
    pub(crate) fn table(&mut self, table: &Table) -> Result<(), Failed> {
        Ok(writeln!(self.out, "{}", table.render())?)
    }

    /// A question, which is answered by one line.
    pub(crate) fn ask(&mut self, question: &str) -> Result<String, Failed> {
        write!(self.err, "{question} ")?;
        self.err.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failed> {
        Ok(self.out.flush()?)
    }

    /// Says why a command has failed, and how the program ends.
    pub(crate) fn failed(&mut self, failed: &Failed) -> Exit {
        let exit = failed.exit();
        if exit != Exit::Fine {
            self.note(format!("keylapse: {failed}"));
            failed.here().into_iter().for_each(|here| self.note(format!("here: {here}")));
        }
        exit
    }
}
