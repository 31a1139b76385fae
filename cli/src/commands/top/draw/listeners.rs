//! Who listens, and to what.

use ratatui::style::Style;

use super::grid::{Cell, Column, Grid};
use super::theme::Theme;
use crate::commands::top::model::ListenerRow;
use crate::output::{short, stalled};

pub(super) fn grid(listeners: &[ListenerRow]) -> Grid {
    let columns = vec![
        Column::text("HOST", 0, 12),
        Column::number("PROCESS", 2),
        Column::word("VERSION", 5),
        Column::number("RUNNING", 1),
        Column::text("HEARS", 3, 16),
        Column::text("TOPICS", 4, 12),
    ];
    Grid {
        columns,
        rows: listeners
            .iter()
            .map(|listener| (!listener.gap.is_empty() || listener.stalled_ms.is_some(), row(listener)))
            .collect(),
    }
}

fn row(listener: &ListenerRow) -> Vec<Cell> {
    vec![
        Cell::plain(short(&listener.host, 60)),
        Cell::plain(listener.pid.to_string()),
        Cell::plain(short(&listener.version, 20)),
        Cell::plain(listener.places.clone()),
        Cell::plain(short(&listener.hears, 200)),
        Cell::plain(short(&listener.topics, 400)),
    ]
}

/// What somebody has to know of a listener before all else.
pub(super) fn remark(listener: &ListenerRow, theme: Theme) -> Option<(String, Style)> {
    if let Some(ms) = listener.stalled_ms {
        return Some((stalled(ms), theme.alarm()));
    }
    let gap = short(&listener.gap, 400);
    (!gap.is_empty()).then(|| (format!("it may miss something: {gap}"), theme.alarm()))
}
