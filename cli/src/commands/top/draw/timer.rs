//! What is known of a key: how it stands, and what has happened, the newest first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};

use super::entries;
use super::theme::Theme;
use super::words::{relative, width, wrap};
use crate::commands::top::model::Timer;
use crate::output::{counted, moment, size};

/// Columns of the words before facts.
const NAMES: usize = 13;
/// Columns of `in 123d23h` and the like.
const SINCE: usize = 13;

pub(super) fn draw(key: &[u8], known: Option<&Timer>, at: usize, frame: &mut Frame<'_>, area: Rect) {
    let columns = usize::from(area.width).saturating_sub(1);
    let mut lines = field("key", &entries::key(key), columns, 3);
    let Some(known) = known else {
        lines.push(Line::raw("   Looking…"));
        return frame.render_widget(Text::from(lines), area);
    };
    lines.extend(facts(known, columns));
    lines.push(Line::raw(""));
    let mut story = story(known, columns);
    // What is above the story goes first where there is little room, and the chosen moment is always to be seen.
    let room = usize::from(area.height).saturating_sub(lines.len()).max(usize::from(area.height) / 2);
    lines.truncate(usize::from(area.height) - room);
    story.drain(..at.min(story.len().saturating_sub(1)));
    lines.extend(story.into_iter().take(room));
    frame.render_widget(Text::from(lines), area);
}

fn facts(known: &Timer, columns: usize) -> Vec<Line<'static>> {
    let state = match (&known.timer, known.enrolled, known.letters.first()) {
        (Some(timer), ..) => {
            format!("{}, attempt {}, payload {}", timer.state.as_str(), timer.attempt, size(timer.bytes))
        }
        (None, true, _) => "enrolled: it is known when the key expires".to_owned(),
        (None, false, Some(letter)) => {
            format!("dead: {}, after {}", letter.reason, counted(letter.attempt.into(), "attempt"))
        }
        (None, false, None) => "nothing is armed under this key".to_owned(),
    };
    let mut lines = field("state", &state, columns, 1);
    lines.extend(field("next", &known.next, columns, 2));
    known.not_now.iter().for_each(|why| lines.extend(field("not now", why, columns, 2)));
    known.served_by.iter().for_each(|who| lines.extend(field("served by", who, columns, 1)));
    lines
}

fn field(name: &str, value: &str, columns: usize, most: usize) -> Vec<Line<'static>> {
    let values = wrap(value, columns.saturating_sub(NAMES), most).into_iter().enumerate();
    let line = |(at, value)| {
        let name = if at == 0 { name } else { "" };
        Line::from(vec![Span::styled(format!("   {name:<10}"), Theme::quiet()), Span::raw(value)])
    };
    values.map(line).collect()
}

/// What will happen and what has, with a line for now between them.
fn story(known: &Timer, columns: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut is_past = false;
    for (at, what) in &known.timeline {
        if !is_past && *at <= known.now_ms {
            is_past = true;
            if !lines.is_empty() {
                lines.push(Line::styled(
                    format!("   {:-<width$}", "now ", width = columns.min(60)),
                    Theme::quiet(),
                ));
            }
        }
        lines.extend(moment_lines(*at, what, known.now_ms, columns));
    }
    if lines.is_empty() {
        lines.push(Line::styled("   Nothing has happened that is still known.", Theme::quiet()));
    }
    lines
}

fn moment_lines(at: u64, what: &str, now_ms: u64, columns: usize) -> Vec<Line<'static>> {
    let mut before = format!("   {:<SINCE$}", relative(at, now_ms));
    if columns >= 80 {
        before.push_str(&format!("{}  ", moment(at)));
    }
    let indent = width(&before);
    let whats = wrap(what, columns.saturating_sub(indent), 4).into_iter().enumerate();
    let line = |(at, what): (usize, String)| {
        let before = if at == 0 { before.clone() } else { " ".repeat(indent) };
        Line::from(vec![Span::styled(before, Theme::quiet()), Span::raw(what)])
    };
    whats.map(line).collect()
}
