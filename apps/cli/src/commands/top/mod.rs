//! `keylapse top`: shows topics on a screen that stays up to date.
//!
//! [`app`] is the state, [`keys`] changes it, and [`draw`] shows it, with [`body`] and [`grid`]. [`worker`] makes requests
//! to the server. Only the loop here has the terminal, the time and tasks.

mod app;
mod body;
mod draw;
mod grid;
mod keys;
#[cfg(test)]
mod tests;
mod worker;

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
use self::worker::{ScreenAnswer, ScreenRequest, ScreenWorker};
use crate::args::Connect;
use crate::exit::{CliError, Exit};
use crate::output::Output;

/// The shortest interval. A shorter one would load the server, and nobody could read the screen.
const LEAST: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Allow actions: run, replay, cancel, drop and pause. Each asks first.
    #[arg(long)]
    write: bool,
    /// Update the screen at this interval, of at least 500ms.
    #[arg(long, value_name = "SPAN", default_value = "2s", value_parser = parse_every)]
    every: Duration,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    match parse_span(text) {
        Ok(every) if every >= LEAST => Ok(every),
        Ok(_) => Err("the shortest interval is 500ms".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) async fn run(connect: &Connect, args: &Args, out: &Output) -> Result<Exit, CliError> {
    if out.is_json() || !stdout().is_terminal() {
        return Err(CliError::Usage("top needs a terminal; use status --json".to_owned()));
    }
    if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        let advice = "top needs a terminal whose cursor can be moved, and TERM is dumb; use status";
        return Err(CliError::Usage(advice.to_owned()));
    }
    // A server that cannot be reached at the start is a plain error, outside of the screen.
    let console = connect.console().await?;
    let (server, namespace) = (server(&connect.url), console.namespace().to_owned());
    let app = App::new(Setting { server, namespace, write: args.write, every: args.every });
    show(app, ScreenWorker::new(console), out.has_colours()).await?;
    Ok(Exit::Success)
}

/// Returns the URL of a server without user and password, and without the scheme if it is `redis` or `valkey`.
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

/// A terminal that is restored when this value is dropped.
///
/// `ratatui::restore` and the drop of a `Terminal` do not serve: both print errors to a terminal that may be gone, and then
/// panic.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.0.show_cursor();
        _ = ratatui::try_restore();
    }
}

/// Shows the screen until the operator quits, the terminal is gone, or a signal ends the program.
async fn show(mut app: App, desk: ScreenWorker, colours: bool) -> std::io::Result<()> {
    let end = crate::signals::to_end();
    tokio::pin!(end);
    let mut screen = Screen(ManuallyDrop::new(ratatui::try_init()?));
    let (mut events, started) = (events(), Instant::now());
    let mut tasks = Tasks { desk: Arc::new(desk), all: JoinSet::new(), look: None };
    while !app.is_over {
        tasks.start(app.on_time(started.elapsed()));
        if screen.0.draw(|frame| draw::draw(&app, colours, frame)).is_err() {
            // The terminal is gone.
            break;
        }
        let wakes = started + app.wakes();
        let request = tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) => app.on_key(key),
                // After another event, such as a resize, the screen is drawn again.
                Some(_) => None,
                None => break,
            },
            Some(answer) = tasks.all.join_next() => match answer {
                Ok(answer) => app.on_answer(started.elapsed(), answer),
                // The panic hook has restored the terminal and printed the panic.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => None,
            },
            () = tokio::time::sleep_until(wakes.into()) => None,
            () = &mut end => break,
        };
        tasks.start(request);
    }
    drop(screen);
    // Confirmed actions are completed. The client's `retry_for` bounds them.
    tasks.look.iter().for_each(AbortHandle::abort);
    while tasks.all.join_next().await.is_some() {}
    Ok(())
}

/// The running requests, which do not delay the handling of keys.
struct Tasks {
    desk: Arc<ScreenWorker>,
    all: JoinSet<ScreenAnswer>,
    look: Option<AbortHandle>,
}

impl Tasks {
    fn start(&mut self, request: Option<ScreenRequest>) {
        let Some(request) = request else { return };
        let (desk, is_look) = (Arc::clone(&self.desk), matches!(request, ScreenRequest::Look { .. }));
        let task = self.all.spawn(async move { desk.answer(request).await });
        if is_look {
            // The previous query is superseded.
            self.look.replace(task).iter().for_each(AbortHandle::abort);
        }
    }
}

/// Returns the events of the terminal, until it is gone.
///
/// A thread reads them. The stream of crossterm needs a feature that ratatui does not pass on, and has a thread, too. This
/// thread waits in a system call until the program ends.
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
