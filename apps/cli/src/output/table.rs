//! Tables of text.

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};

/// The heading and the alignment of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// Text, which is aligned on the left.
    Text(&'static str),
    /// Numbers, which are aligned on the right.
    Number(&'static str),
}

/// Rows under headings.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns the table. Lines are never wrapped, so that tools such as `grep` find whole rows.
    pub(crate) fn render(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.columns.iter().map(|column| self.cell(column.heading(), *column)));
        for row in &self.rows {
            table.add_row(row.iter().zip(&self.columns).map(|(text, column)| self.cell(text, *column)));
        }
        table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 2)));
        let lines = table.lines().map(|line| line.trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn cell(&self, text: &str, column: Column) -> Cell {
        let alignment = match column {
            Column::Text(_) => CellAlignment::Left,
            Column::Number(_) => CellAlignment::Right,
        };
        Cell::new(text).set_alignment(alignment)
    }
}

impl Column {
    fn heading(&self) -> &'static str {
        match self {
            Self::Text(heading) | Self::Number(heading) => heading,
        }
    }
}
