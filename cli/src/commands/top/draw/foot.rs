//! The lines below: what is asked or has to be said, and which keys do what.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use super::theme::Theme;
use super::words::{width, wrap};
use super::{listeners, topics};
use crate::commands::top::app::{App, Of, Purpose};
use crate::output::short;

/// Lines of a message, at most.
const MOST: usize = 4;

/// What has to be said now, with how it looks: the most urgent of all.
fn message(app: &App, theme: Theme) -> Option<(String, Style)> {
    if let Some(question) = &app.question {
        return Some((format!("{} y/N", question.text), theme.wish().patch(Theme::strong())));
    }
    if let Some(line) = &app.line {
        let prompt = match &line.purpose {
            Purpose::Filter => "/".to_owned(),
            Purpose::Reason { topic, .. } => format!("why is {topic} to be paused? "),
        };
        let refused = line.refused.as_ref().map_or_else(String::new, |why| format!("  {}", short(why, 300)));
        return Some((format!("{prompt}{}_{refused}", short(&line.text, 200)), Theme::strong()));
    }
    if let Some(notice) = &app.notice {
        return Some((short(&notice.text, 400), if notice.is_bad { theme.alarm() } else { Theme::strong() }));
    }
    if let Some(error) = &app.error {
        return Some((short(error, 400), theme.alarm()));
    }
    if app.is_acting {
        return Some(("being done…".to_owned(), theme.wish()));
    }
    if app.help.is_some() { None } else { remark(app, theme) }
}

/// What is to be known of the chosen line.
fn remark(app: &App, theme: Theme) -> Option<(String, Style)> {
    let view = app.view();
    match &view.of {
        Of::Listeners { rows } => rows.as_ref()?.get(view.at).and_then(|row| listeners::remark(row, theme)),
        Of::Timer { .. } => None,
        _ => {
            let error = view.entry().map(|entry| short(&entry.error, 400)).filter(|error| !error.is_empty());
            let of_topic = view.topic().and_then(|topic| topics::remark(topic, theme));
            error.map(|error| (error, Theme::plain())).or(of_topic)
        }
    }
}

/// How many lines it takes.
pub(super) fn height(app: &App, theme: Theme, area: Rect) -> u16 {
    let most = if area.height < 16 { MOST.min(usize::from(area.height) / 4) } else { MOST };
    let lines = message(app, theme).map_or(1, |(text, _)| wrap(&text, columns(area), most.max(1)).len());
    u16::try_from(lines).unwrap_or(1) + 1
}

fn columns(area: Rect) -> usize {
    usize::from(area.width).saturating_sub(2)
}

pub(super) fn draw(app: &App, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let room = usize::from(area.height).saturating_sub(1);
    let mut lines = Vec::new();
    if let Some((text, style)) = message(app, theme) {
        let wrapped = wrap(&text, columns(area), room);
        lines.extend(wrapped.into_iter().map(|line| Line::styled(format!(" {line}"), style)));
    }
    lines.resize(room, Line::raw(""));
    lines.push(hints(app, usize::from(area.width)));
    frame.render_widget(Text::from(lines), area);
}

/// The keys, as many as there is room for: the dangerous ones first, as nobody knows them by heart.
fn hints(app: &App, columns: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    let mut left = columns.saturating_sub(1);
    for (key, name) in keys(app) {
        let taken = width(&key) + width(name) + 3;
        if taken > left {
            break;
        }
        left -= taken;
        spans.push(Span::styled(key, Theme::strong()));
        spans.push(Span::styled(format!(" {name}  "), Theme::quiet()));
    }
    Line::from(spans)
}

fn keys(app: &App) -> Vec<(String, &'static str)> {
    let fixed: &[(&str, &'static str)] = match &app.view().of {
        _ if app.question.is_some() => &[("y", "do it"), ("any other key", "leave it")],
        _ if app.line.is_some() => &[("Enter", "ok"), ("Esc", "leave it")],
        _ if app.help.is_some() => &[("j k", "scroll"), ("any other key", "close")],
        Of::Topics { .. } => &[
            ("?", "help"),
            ("q", "quit"),
            ("Enter", "open"),
            ("/", "filter"),
            ("d", "letters"),
            ("Tab", "listeners"),
            ("n p", "page"),
        ],
        Of::Listeners { .. } => &[("?", "help"), ("q", "quit"), ("Tab", "topics")],
        Of::Entries(_) => &[
            ("?", "help"),
            ("Esc", "back"),
            ("Enter", "why"),
            ("/", "filter"),
            ("Tab", "state"),
            ("n p", "page"),
            ("q", "quit"),
        ],
        Of::Timer { .. } => &[("?", "help"), ("Esc", "back"), ("j k", "scroll"), ("q", "quit")],
    };
    let is_asked = app.question.is_some() || app.line.is_some() || app.help.is_some();
    let offers = if is_asked { Vec::new() } else { app.offers() };
    let offers = offers.into_iter().map(|offer| (offer.key.to_string(), offer.name));
    offers.chain(fixed.iter().map(|(key, name)| ((*key).to_owned(), *name))).collect()
}
