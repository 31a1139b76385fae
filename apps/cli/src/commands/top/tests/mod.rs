//! Tests without a server: the effects of keys and answers on the state, and whole screens.

mod data;
mod drawings;
mod refusals;
mod walks;

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Setting};
use super::draw::draw;
use super::worker::{ScreenData, ScreenRequest};

fn app(write: bool) -> App {
    let (server, namespace) = ("127.0.0.1:6379".to_owned(), "keylapse".to_owned());
    App::new(Setting { server, namespace, write, every: Duration::from_secs(2) })
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Presses keys: each character by itself, `\n` is Enter, `\t` Tab, `\u{1b}` Esc. Returns the request of the last one.
fn press(app: &mut App, keys: &str) -> Option<ScreenRequest> {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        '\u{1b}' => KeyCode::Esc,
        key => KeyCode::Char(key),
    };
    keys.chars().map(|key| app.on_key(KeyEvent::new(code(key), KeyModifiers::NONE))).last().flatten()
}

/// Answers the running query.
#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn answer(app: &mut App, asked: Option<ScreenRequest>, data: ScreenData) {
    let Some(ScreenRequest::Look { ticket, .. }) = asked else { panic!("nothing was asked for: {asked:?}") };
    app.on_data(ticket, Ok(data));
}

/// Returns the first screen, with the topics of `data`.
fn with_topics(write: bool) -> App {
    let mut app = app(write);
    let asked = app.on_time(at(1));
    answer(&mut app, asked, data::topics());
    app
}

/// Returns the screen that these keys open, with this page of entries.
fn with_entries(write: bool, keys: &str, page: ScreenData) -> App {
    let mut app = with_topics(write);
    let asked = press(&mut app, keys);
    answer(&mut app, asked, page);
    app
}

/// Returns the whole screen as text.
fn screen(app: &App, width: u16, height: u16) -> String {
    drawn(app, false, width, height).to_string()
}

fn drawn(app: &App, colours: bool, width: u16, height: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, colours, frame)).unwrap();
    terminal.backend().clone()
}
