//! `keylapse top`: the topics on a screen that stays up to date.
//!
//! [`app`] is the state and [`keys`] changes it; [`draw`] shows it, with the parts [`body`] and [`grid`]; [`desk`] asks the
//! server. Only the loop here has the terminal, the time and tasks.

mod app;
mod body;
mod desk;
mod draw;
mod grid;
mod keys;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, stdout};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylapse_console::parse_span;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{AbortHandle, JoinSet};

use self::app::{App, Setting};
use self::desk::{Answer, Desk, Request};
use crate::args::Connect;
use crate::exit::{Exit, Failed};
use crate::output::Output;

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

pub(crate) async fn run(connect: &Connect, args: &Args, out: &Output) -> Result<Exit, Failed> {
    if out.is_json() || !stdout().is_terminal() {
        return Err(Failed::Usage("top needs a terminal; use status --json".to_owned()));
    }
    if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        let advice = "top needs a terminal whose cursor can be moved, and TERM says dumb; use status";
        return Err(Failed::Usage(advice.to_owned()));
    }
    // Where the server cannot be reached at first, a plain message says so, and what to do.
    let console = connect.console().await?;
    let (server, namespace) = (server(&connect.url), console.namespace().to_owned());
    let app = App::new(Setting { server, namespace, write: args.write, every: args.every });
    show(app, Desk::new(console), out.has_colours()).await?;
    Ok(Exit::Fine)
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

/// A terminal that is as it was before once this value is gone, whatever happens.
///
/// Neither `ratatui::restore` nor the end of a `Terminal` will do: both write their complaint to a terminal that may be
/// gone, and panic then.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.0.show_cursor();
        _ = ratatui::try_restore();
    }
}

/// Shows the screen until somebody quits, the terminal is gone or the program is to end.
async fn show(mut app: App, desk: Desk, colours: bool) -> std::io::Result<()> {
    let end = crate::signals::to_end();
    tokio::pin!(end);
    let mut screen = Screen(ManuallyDrop::new(ratatui::try_init()?));
    let (mut events, started) = (events(), Instant::now());
    let mut tasks = Tasks { desk: Arc::new(desk), all: JoinSet::new(), look: None };
    while !app.is_over {
        tasks.start(app.on_time(started.elapsed()));
        if screen.0.draw(|frame| draw::draw(&app, colours, frame)).is_err() {
            // The terminal is gone, and whoever sat there with it.
            break;
        }
        let wakes = started + app.wakes();
        let request = tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) => app.on_key(key),
                // It is drawn anew, as large as it is now.
                Some(_) => None,
                None => break,
            },
            Some(answer) = tasks.all.join_next() => match answer {
                Ok(answer) => app.on_answer(started.elapsed(), answer),
                // It has said why already, on the terminal that the hook had given back.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => None,
            },
            () = tokio::time::sleep_until(wakes.into()) => None,
            () = &mut end => break,
        };
        tasks.start(request);
    }
    drop(screen);
    // What was agreed to is not left half done: the client's patience ends it.
    tasks.look.iter().for_each(AbortHandle::abort);
    while tasks.all.join_next().await.is_some() {}
    Ok(())
}

/// The tasks that are under way. They do not hold up keys.
struct Tasks {
    desk: Arc<Desk>,
    all: JoinSet<Answer>,
    look: Option<AbortHandle>,
}

impl Tasks {
    fn start(&mut self, request: Option<Request>) {
        let Some(request) = request else { return };
        let (desk, is_look) = (Arc::clone(&self.desk), matches!(request, Request::Look { .. }));
        let task = self.all.spawn(async move { desk.answer(request).await });
        if is_look {
            // Nobody waits for the one before any more.
            self.look.replace(task).iter().for_each(AbortHandle::abort);
        }
    }
}

/// What comes from the terminal; it ends when that is gone.
///
/// A thread reads it, rather than crossterm's stream: that needs a feature that ratatui does not pass on, and has a
/// thread of its own all the same. This one waits in a system call until the program ends.
fn events() -> Receiver<Event> {
    let (to, events) = channel(64);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if to.blocking_send(event).is_err() {
                break;
            }
        }
    });
    events
}
