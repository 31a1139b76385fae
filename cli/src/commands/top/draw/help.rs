//! What the keys are.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};

use super::theme::Theme;
use super::words::wrap;

const KEYS: [(&str, &str); 19] = [
    ("j k, arrows", "another line; g the first, G the last"),
    ("Enter, l", "open what is chosen"),
    ("Esc, h", "back"),
    ("Tab, 1 to 5", "topics and listeners; a topic's entries by state"),
    ("d", "dead letters"),
    ("n p", "the next page, the page before"),
    ("/", "filter; an empty one shows all"),
    ("r", "look again now"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("Topics", "part of the name, such as order"),
    ("Entries", "key:order:* attempt:>3 lost:>0 reason:exhausted error:~timeout older:1h newer:1h"),
    ("", "id:…; all that are named have to hold; a space within a key is \\x20"),
    ("", ""),
    ("With --write", "each asks first"),
    ("R", "run a timer now; replay a dead letter"),
    ("C", "cancel a timer"),
    ("D", "drop a dead letter for good"),
    ("P", "pause or resume the topic"),
];

/// Draws it from this line on, or as much of the end as there is room for.
pub(super) fn draw(from: usize, frame: &mut Frame<'_>, area: Rect) {
    const NAMES: usize = 17;
    let columns = usize::from(area.width).saturating_sub(NAMES + 1);
    let mut lines = Vec::new();
    for (key, what) in KEYS {
        for (at, what) in wrap(what, columns, 9).into_iter().enumerate() {
            let key = if at == 0 { key } else { "" };
            lines.push(Line::from(vec![
                Span::styled(format!("   {key:<14}"), Theme::strong()),
                Span::raw(what),
            ]));
        }
    }
    let room = usize::from(area.height);
    let last = lines.len().saturating_sub(usize::from(area.height));
    lines.drain(..from.min(last));
    if lines.len() > room && room > 1 {
        lines[room - 1] = Line::styled("   …             j goes on", Theme::quiet());
    }
    frame.render_widget(Text::from(lines), area);
}
