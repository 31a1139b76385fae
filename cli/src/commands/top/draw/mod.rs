//! The screen, as a function of the state.

mod entries;
mod foot;
mod grid;
mod head;
mod help;
mod listeners;
mod theme;
mod timer;
mod topics;
mod words;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};

pub(super) use self::theme::Theme;
use self::words::wrap;
use super::app::{App, Entries, Of, View};
use crate::output::short;

/// What there has to be room for.
const LEAST: (u16, u16) = (40, 10);
/// From this height on, some lines are left free.
const TALL: u16 = 16;

pub(super) fn draw(app: &App, theme: Theme, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("keylapse top needs {} columns and {} lines; q quits", LEAST.0, LEAST.1);
        let lines = wrap(&text, usize::from(area.width), usize::from(area.height));
        return frame.render_widget(Text::from_iter(lines), area);
    }
    let foot = foot::height(app, theme, area);
    let gap = u16::from(area.height >= TALL);
    let parts = [1, 1, gap].map(Constraint::Length).into_iter();
    let parts = parts.chain([Constraint::Fill(1), Constraint::Length(foot)]);
    let [status, tabs, _, body, foot] = Layout::vertical(parts).areas(area);
    head::status(app, theme, frame, status);
    head::tabs(app, frame, tabs);
    match app.help {
        Some(from) => help::draw(from, frame, body),
        None => screen(app, theme, frame, body),
    }
    foot::draw(app, theme, frame, foot);
}

fn screen(app: &App, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let view = app.view();
    match &view.of {
        Of::Topics { page: None, .. } | Of::Listeners { rows: None } => say("Looking…", frame, area),
        Of::Topics { page: Some(page), containing, .. } if page.rows.is_empty() => {
            say(&no_topics(containing, &app.setting.namespace), frame, area);
        }
        Of::Topics { page: Some(page), .. } => {
            topics::grid(&page.rows, theme).draw(view.at, theme, frame, area);
        }
        Of::Listeners { rows: Some(rows) } if rows.is_empty() => {
            say("No listener has reported within 15 s: nobody runs timers.", frame, area);
        }
        Of::Listeners { rows: Some(rows) } => listeners::grid(rows).draw(view.at, theme, frame, area),
        Of::Entries(entries) => of_topic(entries, view, theme, frame, area),
        Of::Timer { key, known, .. } => timer::draw(key, known.as_deref(), view.at, frame, area),
    }
}

/// A topic: how it is, and its entries.
fn of_topic(entries: &Entries, view: &View, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let Some(page) = &entries.page else { return say("Looking…", frame, area) };
    // Where there is little room, one line says the most important.
    let facts = if area.height >= TALL - 4 { 3 } else { 1 };
    let [above, below] = Layout::vertical([Constraint::Length(facts), Constraint::Fill(1)]).areas(area);
    let lines = topics::facts(&page.topic, theme, usize::from(area.width));
    frame.render_widget(Text::from(lines.to_vec()), above);
    if view.seen.is_none() {
        return say("Looking…", frame, below);
    }
    if page.rows.is_empty() {
        return say(&entries::none(entries, page), frame, below);
    }
    entries::grid(&page.rows, entries.state.0, page.now_ms).draw(view.at, theme, frame, below);
}

fn no_topics(containing: &str, namespace: &str) -> String {
    if containing.is_empty() {
        let namespace = short(namespace, 60);
        return format!(
            "No topic is registered in namespace {namespace} yet: programs register theirs when they first use them."
        );
    }
    format!("No topic's name contains {}.", short(containing, 60))
}

/// A sentence in the place of a table.
fn say(text: &str, frame: &mut Frame<'_>, area: Rect) {
    let columns = usize::from(area.width).saturating_sub(4);
    let lines = wrap(text, columns, usize::from(area.height));
    frame.render_widget(Text::from_iter(lines.into_iter().map(|line| Line::raw(format!("   {line}")))), area);
}
