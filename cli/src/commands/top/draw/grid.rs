//! Tables whose columns stand aligned. Where there is no room for all of them, those that matter least are left out.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::theme::Theme;
use super::words::{clip, width};

/// Between two columns.
const GAP: usize = 2;
/// Before the first: which line is chosen, and which is an alarm.
const GUTTER: usize = 3;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    heading: &'static str,
    /// Columns of the lowest rank stay longest; 0 always does.
    rank: u8,
    is_number: bool,
    /// How narrow it may become, where its texts may be cut.
    least: Option<usize>,
}

impl Column {
    /// Numbers, which end below each other.
    pub(super) fn number(heading: &'static str, rank: u8) -> Self {
        Self { heading, rank, is_number: true, least: None }
    }

    /// Words of a known length.
    pub(super) fn word(heading: &'static str, rank: u8) -> Self {
        Self { heading, rank, is_number: false, least: None }
    }

    /// Text of any length, which is cut where it has to be.
    pub(super) fn text(heading: &'static str, rank: u8, least: usize) -> Self {
        Self { heading, rank, is_number: false, least: Some(least) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::styled(text, Theme::plain())
    }

    /// A text that matters only where it is not `-` or `0`.
    pub(super) fn number(text: String) -> Self {
        let style = if matches!(text.as_str(), "0" | "-") { Theme::quiet() } else { Theme::plain() };
        Self { text, style }
    }
}

/// Rows under headings.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) columns: Vec<Column>,
    /// Each with whether it is an alarm.
    pub(super) rows: Vec<(bool, Vec<Cell>)>,
}

impl Grid {
    /// Draws the rows around the chosen one. Screens are turned whole, so that lines stand still while one goes through
    /// them.
    pub(super) fn draw(&self, chosen: usize, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
        let widths = self.fit(usize::from(area.width).saturating_sub(GUTTER));
        let room = usize::from(area.height).saturating_sub(1).max(1);
        let mut lines = vec![self.headings(&widths)];
        let from = chosen / room * room;
        for (at, (alarm, cells)) in self.rows.iter().enumerate().skip(from).take(room) {
            let line = row(cells, &self.columns, &widths, *alarm, at == chosen, theme);
            lines.push(if at == chosen { line.patch_style(Theme::chosen()) } else { line });
        }
        frame.render_widget(ratatui::text::Text::from(lines), area);
    }

    fn headings(&self, widths: &[Option<usize>]) -> Line<'static> {
        let mut text = " ".repeat(GUTTER);
        for (column, width) in self.columns.iter().zip(widths) {
            let Some(width) = width else { continue };
            text.push_str(&padded(column.heading, *width, column.is_number));
            text.push_str(&" ".repeat(GAP));
        }
        Line::styled(text.trim_end().to_owned(), Theme::quiet())
    }

    /// How wide each column is; none for those that are left out.
    fn fit(&self, room: usize) -> Vec<Option<usize>> {
        let natural: Vec<_> = (0..self.columns.len()).map(|at| self.natural(at)).collect();
        let least = |at: usize| self.columns[at].least.map_or(natural[at], |least| least.min(natural[at]));
        let mut ranked: Vec<_> = (0..self.columns.len()).collect();
        ranked.sort_by_key(|at| self.columns[*at].rank);
        let (mut shown, mut left) = (Vec::new(), room + GAP);
        for at in ranked {
            let wanted = least(at) + GAP;
            if wanted <= left || shown.is_empty() {
                left = left.saturating_sub(wanted);
                shown.push(at);
            }
        }
        // What is left goes to those that were to be cut, the most important first.
        let mut widths = vec![None; self.columns.len()];
        for at in shown {
            let more = left.min(natural[at] - least(at));
            left -= more;
            widths[at] = Some((least(at) + more).min(room));
        }
        widths
    }

    fn natural(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|(_, cells)| cells.get(at).map_or(0, |cell| width(&cell.text)));
        cells.chain([width(self.columns[at].heading)]).max().unwrap_or(0)
    }
}

fn row(
    cells: &[Cell],
    columns: &[Column],
    widths: &[Option<usize>],
    alarm: bool,
    chosen: bool,
    theme: Theme,
) -> Line<'static> {
    let mut spans = vec![
        Span::raw(if chosen { ">" } else { " " }),
        if alarm { Span::styled("! ", theme.alarm()) } else { Span::raw("  ") },
    ];
    for ((cell, column), width) in cells.iter().zip(columns).zip(widths) {
        let Some(width) = width else { continue };
        spans.push(Span::styled(padded(&cell.text, *width, column.is_number), cell.style));
        spans.push(Span::raw(" ".repeat(GAP)));
    }
    Line::from(spans)
}

fn padded(text: &str, columns: usize, to_the_right: bool) -> String {
    let text = clip(text, columns);
    let blank = " ".repeat(columns.saturating_sub(width(&text)));
    if to_the_right { blank + &text } else { text + &blank }
}
