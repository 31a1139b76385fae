//! Fits texts and tables to the size of the screen, and defines their styles.

use ratatui::layout::Size;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::output::short;

/// Characters of a text that are read: keys of 64 KiB exist.
pub(super) const LONGEST: usize = 1000;

// Each style repeats information that is also in words, so that nothing is lost without colours.
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

// Red is only for alarms. Yellow is for states that the operator has asked for, and for questions.
pub(super) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const WISH: Style = Style::new().fg(Color::Yellow);

/// Returns the columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns a text that cannot move the cursor, cut to this many columns with `…` at the end.
pub(super) fn clip(text: &str, columns: usize) -> String {
    let text = short(text, LONGEST);
    match columns {
        _ if width(&text) <= columns => text,
        0 | 1 => "…".repeat(columns),
        _ => format!("{}…", &text[..fitting(&text, columns - 1)]),
    }
}

/// Wraps a text into at most `most` lines of this many columns, and cuts the rest.
pub(super) fn wrap(text: &str, columns: usize, most: usize) -> Vec<String> {
    let text = short(text, LONGEST);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for mut word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        // A word that is longer than a line continues in the next one.
        while width(word) > columns {
            let (head, rest) = word.split_at(fitting(word, columns));
            lines.push(head.to_owned());
            word = rest;
        }
        line.push_str(if line.is_empty() { "" } else { " " });
        line.push_str(word);
    }
    lines.push(line);
    if lines.len() > most && most > 0 {
        let rest = lines.split_off(most - 1).join(" ");
        lines.push(clip(&rest, columns));
    }
    lines
}

/// Returns how many bytes of a text fit into this many columns; at least one character.
fn fitting(text: &str, columns: usize) -> usize {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += width(c.encode_utf8(&mut [0; 4]));
        if taken > columns && at > 0 {
            return at;
        }
    }
    text.len()
}

/// Returns a text after a name, in lines that are indented below it.
pub(super) fn named(name: &str, style: Style, text: &str, columns: usize, most: usize) -> Vec<Line<'static>> {
    let indent = " ".repeat(width(name));
    let lines = wrap(text, columns.saturating_sub(indent.len()), most).into_iter().enumerate();
    let before = |at| if at == 0 { name.to_owned() } else { indent.clone() };
    lines.map(|(at, text)| Line::from(vec![Span::styled(before(at), style), Span::raw(text)])).collect()
}

/// The space between two columns.
const GAP: &str = "  ";
/// The space before the first column, for the marks of the selected line and of alarms.
const GUTTER: &str = "   ";
/// The rank of a column that is not shown.
pub(super) const NEVER: u8 = u8::MAX;

/// Kind, rank and heading of a column. Columns of a high rank are left out first, and rank 0 never is.
pub(super) type ColumnHead = (Kind, u8, &'static str);

/// The kinds of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers, which are aligned on the right. `-` and `0` are dimmed.
    Number,
    /// Words, which are never cut.
    Word,
    /// Text, which can be cut to this width.
    Text(usize),
}

/// A table with aligned columns. If not all of them fit, the least important are left out.
pub(super) struct Grid<'a, R> {
    rows: &'a [R],
    is_alarm: fn(&R) -> bool,
    columns: Vec<GridColumn>,
}

struct GridColumn {
    kind: Kind,
    rank: u8,
    /// The heading, and one cell of each row.
    cells: Vec<Span<'static>>,
    /// The width of the widest cell, and the least width of the column.
    natural: usize,
    least: usize,
    /// The width on the screen; 0 leaves the column out.
    width: usize,
}

impl<'a, R> Grid<'a, R> {
    pub(super) fn of(rows: &'a [R], is_alarm: fn(&R) -> bool) -> Self {
        Self { rows, is_alarm, columns: Vec::new() }
    }

    /// Adds a column, whose cells this function returns.
    pub(super) fn column<S: Into<Span<'static>>>(mut self, head: ColumnHead, cell: impl Fn(&R) -> S) -> Self {
        let (kind, rank, heading) = head;
        let mut cells = vec![Span::raw(heading)];
        cells.extend(self.rows.iter().map(|row| cell(row).into()));
        let natural = cells.iter().map(Span::width).max().unwrap_or(0);
        let least = if let Kind::Text(least) = kind { least.min(natural) } else { natural };
        self.columns.push(GridColumn { kind, rank, cells, natural, least, width: 0 });
        self
    }

    /// Returns the page of rows with the selected one. Pages do not scroll, so lines keep their place while the selection
    /// moves.
    pub(super) fn lines(mut self, chosen: usize, room: Size) -> Vec<Line<'static>> {
        self.fit(usize::from(room.width).saturating_sub(GUTTER.len()));
        let page = usize::from(room.height).saturating_sub(1).max(1);
        let line = |gutter: [Span<'static>; 2], at: usize| {
            let cells = self.columns.iter().flat_map(|column| column.shown(at));
            Line::from_iter(gutter.into_iter().chain(cells))
        };
        let mut lines = vec![line([GUTTER.into(), "".into()], 0).style(QUIET)];
        for (at, row) in self.rows.iter().enumerate().skip(chosen / page * page).take(page) {
            let alarm = if (self.is_alarm)(row) { Span::styled("! ", ALARM) } else { "  ".into() };
            lines.push(match at == chosen {
                true => line([">".into(), alarm], at + 1).patch_style(CHOSEN),
                false => line([" ".into(), alarm], at + 1),
            });
        }
        lines
    }

    /// Sets the widths of the columns that fit.
    fn fit(&mut self, room: usize) {
        let mut ranked: Vec<_> = self.columns.iter_mut().filter(|column| column.rank < NEVER).collect();
        ranked.sort_by_key(|column| column.rank);
        let mut left = room + GAP.len();
        for column in &mut ranked {
            let wanted = column.least + GAP.len();
            if column.rank == 0 || wanted <= left {
                left = left.saturating_sub(wanted);
                column.width = column.least;
            }
        }
        // Columns that can be cut get the remaining space, the most important first.
        for column in ranked.into_iter().filter(|column| column.width > 0) {
            let more = left.min(column.natural - column.least);
            left -= more;
            column.width = (column.least + more).min(room);
        }
        self.columns.retain(|column| column.width > 0);
    }
}

impl GridColumn {
    /// Returns a cell as wide as the column, and the gap after it.
    fn shown(&self, at: usize) -> [Span<'static>; 2] {
        let Span { content, style } = &self.cells[at];
        let text = clip(content, self.width);
        let blank = " ".repeat(self.width.saturating_sub(width(&text)));
        let span = match self.kind {
            Kind::Number if matches!(text.as_str(), "0" | "-") => Span::styled(blank + &text, QUIET),
            Kind::Number => Span::styled(blank + &text, *style),
            _ => Span::styled(text + &blank, *style),
        };
        [span, GAP.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_no_more_columns_than_there_are() {
        for (text, columns, kept) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 4, "日…"),
            ("abc", 0, ""),
            ("a\u{1b}[31mb", 9, "a·[31mb"),
        ] {
            assert_eq!(clip(text, columns), kept);
            assert!(width(&clip(text, columns)) <= columns);
        }
    }

    #[test]
    fn lines_break_between_words_and_within_long_ones() {
        assert_eq!(wrap("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap("a 0123456789", 5, 9), ["a", "01234", "56789"]);
        assert_eq!(wrap("one two three four", 5, 2), ["one", "two …"]);
        assert_eq!(wrap("", 5, 2), [""]);
        assert!(wrap(&"日本".repeat(9), 5, 20).iter().all(|line| width(line) <= 5));
    }
}
