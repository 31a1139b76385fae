//! `keylapse top`: the topics on a screen that stays up to date.
//!
//! [`app`] is what is known and chosen, and what keys and answers make of it; [`draw`] is how that looks; [`desk`] asks
//! the server. None of these knows the others' world: only [`screen`] has the terminal, the time and tasks.

mod app;
mod deeds;
mod desk;
mod draw;
mod model;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use keylapse_console::parse_span;

use self::app::{App, Setting};
use self::desk::Desk;
use self::draw::Theme;
use crate::args::{Connect, Format};
use crate::exit::{Exit, Failed};

/// More often would be a load, and nothing that an eye could follow.
const LEAST: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Allow R, C, D and P, which run, replay, cancel, drop and pause; each asks first.
    #[arg(long)]
    write: bool,
    /// How often to look; 500ms or more.
    #[arg(long, value_name = "SPAN", default_value = "2s", value_parser = parse_every)]
    every: Duration,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    match parse_span(text) {
        Ok(every) if every >= LEAST => Ok(every),
        Ok(_) => Err("500ms is the least".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) async fn run(connect: &Connect, format: &Format, args: &Args) -> Result<Exit, Failed> {
    if format.json || !stdout().is_terminal() {
        return Err(Failed::Usage("top needs a terminal; use status --json".to_owned()));
    }
    if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        let advice = "top needs a terminal whose cursor can be moved, and TERM says dumb; use status";
        return Err(Failed::Usage(advice.to_owned()));
    }
    // Where the server cannot be reached at first, a plain message says so, and what to do.
    let console = connect.console().await?;
    let setting = Setting {
        server: server(&connect.url),
        namespace: console.namespace().to_owned(),
        write: args.write,
        every: args.every,
    };
    screen::show(App::new(setting), Desk::new(console), Theme { colours: colours(format.color) }).await?;
    Ok(Exit::Fine)
}

fn colours(choice: clap::ColorChoice) -> bool {
    match choice {
        clap::ColorChoice::Always => true,
        clap::ColorChoice::Never => false,
        clap::ColorChoice::Auto => anstream::AutoStream::choice(&stdout()) != anstream::ColorChoice::Never,
    }
}

/// A server's URL without what may be a password; and without its scheme, where that says nothing.
fn server(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    // A password may hold any of `@/?#`, so the last @ of all counts. A path to a socket has none before it.
    let host = match rest.rfind('@') {
        Some(at) if scheme != "unix" => &rest[at + 1..],
        _ => rest,
    };
    let host = host.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    match scheme {
        "redis" | "valkey" => host.to_owned(),
        _ => format!("{scheme}://{host}"),
    }
}
