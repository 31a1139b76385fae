//! The two lines above: where this is and how old it is, and what can be turned to.

use std::time::Duration;

use keylapse_console::EntryState;
use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::text::{Line, Span};

use super::theme::Theme;
use super::words::{clip, width};
use crate::commands::top::app::{App, Entries, Of, View};
use crate::output::{count, span, time_of_day};

/// Below this width, only what changes all the time is said of pages.
const NARROW: u16 = 60;
/// Columns of the program's name, and of a time of day with its gap.
const NAME: usize = 9;
const CLOCK: usize = 11;
/// A server that has not answered for this long is worth a word.
const SLOW: Duration = Duration::from_secs(2);

/// The server, the namespace, whether one can act, the server's time, and the age of what is shown.
pub(super) fn status(app: &App, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let columns = usize::from(area.width);
    let mode = match app.setting.write {
        true => Span::styled("can write", theme.wish()),
        false => Span::styled("read-only", Theme::quiet()),
    };
    let mut right = vec![mode, Span::raw("  "), age(app, theme), Span::raw(" ")];
    let all = [app.setting.server.as_str(), &app.setting.namespace].map(|text| width(text) + 2);
    let needed = NAME + all.iter().sum::<usize>() + Line::from(right.clone()).width() + 2;
    // It is the least of all this: the age is what says whether to believe the rest.
    if let Some(ms) = app.server_ms().filter(|_| needed + CLOCK <= columns) {
        right.insert(1, Span::raw(format!("  {}", time_of_day(ms))));
    }
    let right = Line::from(right);
    let room = columns.saturating_sub(right.width() + 2);
    let mut left = vec![Span::styled(" keylapse", Theme::strong())];
    let mut taken = NAME;
    for (text, least) in [(&app.setting.server, 8), (&app.setting.namespace, 1)] {
        let text = clip(text, room.saturating_sub(taken + 2));
        if width(&text) >= least {
            taken += 2 + width(&text);
            left.push(Span::raw(format!("  {text}")));
        }
    }
    frame.render_widget(Line::from(left), area);
    frame.render_widget(right.alignment(Alignment::Right), area);
}

fn age(app: &App, theme: Theme) -> Span<'static> {
    let waits = app.asked.map_or(Duration::ZERO, |asked| app.now.saturating_sub(asked));
    let seconds = |time: Duration| span(time.as_secs() * 1000).replace("0ms", "0s");
    match app.age() {
        Some(age) if app.error.is_some() => Span::styled(format!("{} old", seconds(age)), theme.alarm()),
        Some(age) if waits >= SLOW => Span::styled(format!("{} old", seconds(age)), theme.wish()),
        Some(age) => Span::raw(format!("{} ago", seconds(age))),
        None if waits >= SLOW => Span::styled(format!("no answer for {}", seconds(waits)), theme.wish()),
        None => Span::styled("looking…", Theme::quiet()),
    }
}

/// What can be turned to by Tab, and how much there is.
pub(super) fn tabs(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let view = app.view();
    let right = format!("{} ", place(view, area.width < NARROW));
    let room = usize::from(area.width).saturating_sub(width(&right) + 2);
    let left = match &view.of {
        Of::Topics { .. } => tab_line("", &["topics".into(), "listeners".into()], 0, room),
        Of::Listeners { .. } => tab_line("", &["topics".into(), "listeners".into()], 1, room),
        Of::Entries(entries) => {
            let names: Vec<_> = entries.states().iter().map(|state| tab(entries, *state)).collect();
            let at = entries.states().iter().position(|state| *state == entries.state.0);
            tab_line(&entries.topic, &names, at.unwrap_or(0), room)
        }
        Of::Timer { topic, .. } => Line::styled(format!(" {}", clip(topic, room)), Theme::strong()),
    };
    frame.render_widget(left, area);
    // A style of the line would be one of the tabs, too.
    let right = Line::from(Span::styled(right, Theme::quiet()));
    frame.render_widget(right.alignment(Alignment::Right), area);
}

/// A state, and how many there are where that is known at no cost.
fn tab(entries: &Entries, state: EntryState) -> String {
    let topic = entries.page.as_ref().map(|page| &page.topic);
    let number = topic.and_then(|topic| match state {
        EntryState::Quarantined => Some(topic.quarantined),
        EntryState::Dead => Some(topic.dead),
        EntryState::Enrolled => Some(topic.enrolled),
        _ => None,
    });
    number.map_or_else(|| state.as_str().to_owned(), |number| format!("{} {}", state.as_str(), count(number)))
}

/// The tabs with their digits; where there is little room, the others have nothing but those.
fn tab_line(title: &str, names: &[String], chosen: usize, room: usize) -> Line<'static> {
    let all: usize = names.iter().map(|name| width(name) + 4).sum();
    let wide = width(title) + 2 + all <= room;
    let named = width(names.get(chosen).map_or("", String::as_str));
    let rest = if wide { all } else { 4 * names.len() + named + 1 };
    let mut spans =
        vec![Span::styled(format!(" {} ", clip(title, room.saturating_sub(rest))), Theme::strong())];
    for (at, name) in names.iter().enumerate() {
        let label =
            if wide || at == chosen { format!(" {}:{name} ", at + 1) } else { format!(" {} ", at + 1) };
        spans.push(Span::styled(label, if at == chosen { Theme::chosen() } else { Theme::plain() }));
    }
    Line::from(spans)
}

/// Which line of how many, which page, and whether there are more.
fn place(view: &View, is_narrow: bool) -> String {
    let at = if view.len() == 0 { 0 } else { view.at + 1 };
    let filter = match view.filter() {
        "" => String::new(),
        _ if is_narrow => "/… ".to_owned(),
        filter => format!("/{}  ", clip(filter, 20)),
    };
    match &view.of {
        Of::Topics { page: Some(page), .. } => {
            let alarms = page.rows.iter().filter(|row| row.standing.is_alarm()).count();
            let alarms = if alarms > 0 { format!("  {alarms} !") } else { String::new() };
            let (at, all) = (page.skipped + at, page.matching);
            format!("{filter}{} of {}{alarms}", count(at as u64), count(all as u64))
        }
        Of::Entries(entries) => {
            let more = if entries.page.as_ref().is_some_and(|page| page.next.is_some()) { "+" } else { "" };
            let page = match entries.pages.len() {
                1 if more.is_empty() => String::new(),
                _ if is_narrow => String::new(),
                page => format!("  page {page}"),
            };
            format!("{filter}{at} of {}{more}{page}", view.len())
        }
        Of::Listeners { rows: Some(rows) } => format!("{at} of {}", rows.len()),
        _ => String::new(),
    }
}
