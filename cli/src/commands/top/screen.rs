//! The loop between the terminal and the server.

use std::future::pending;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;

use super::app::{App, Request};
use super::deeds::Done;
use super::desk::Desk;
use super::draw::{self, Theme};
use super::model::Data;

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

/// What is under way. Neither holds up keys.
#[derive(Default)]
struct Tasks {
    look: Option<JoinHandle<(u64, Result<Data, String>)>>,
    act: Option<JoinHandle<Result<Done, String>>>,
}

/// Shows the screen until somebody quits, the terminal is gone or the program is to end.
pub(super) async fn show(mut app: App, desk: Desk, theme: Theme) -> std::io::Result<()> {
    let desk = Arc::new(desk);
    let end = crate::signals::to_end();
    tokio::pin!(end);
    let mut screen = Screen(ManuallyDrop::new(ratatui::try_init()?));
    let mut events = events();
    let (started, mut tasks) = (Instant::now(), Tasks::default());
    while !app.is_over {
        let request = app.on_time(started.elapsed());
        tasks.start(request, &desk);
        if screen.0.draw(|frame| draw::draw(&app, theme, frame)).is_err() {
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
            (ticket, answer) = ended(&mut tasks.look) => {
                app.on_time(started.elapsed());
                app.on_data(ticket, answer);
                None
            }
            done = ended(&mut tasks.act) => Some(app.on_done(done)),
            () = tokio::time::sleep_until(wakes.into()) => None,
            () = &mut end => break,
        };
        tasks.start(request, &desk);
    }
    drop(screen);
    if let Some(act) = tasks.act {
        // What was agreed to is not left half done: the client's patience ends it.
        _ = act.await;
    }
    Ok(())
}

impl Tasks {
    fn start(&mut self, request: Option<Request>, desk: &Arc<Desk>) {
        let desk = Arc::clone(desk);
        match request {
            Some(Request::Look { ticket, look }) => {
                // Nobody waits for the one before any more.
                self.look.take().into_iter().for_each(|before| before.abort());
                let answer =
                    async move { (ticket, desk.look(look).await.map_err(|error| error.to_string())) };
                self.look = Some(tokio::spawn(answer));
            }
            Some(Request::Act(act)) => {
                let done = async move { desk.act(&act).await.map_err(|error| error.to_string()) };
                self.act = Some(tokio::spawn(done));
            }
            None => {}
        }
    }
}

/// What a task ends with; never, where there is none.
async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> T {
    let Some(running) = task else { return pending().await };
    let result = running.await;
    *task = None;
    match result {
        Ok(result) => result,
        // It has said why already, on the terminal that the hook had given back.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => pending().await,
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
