//! Tables for people.

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};

/// How a column stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// Text.
    Text(&'static str),
    /// Numbers, which end below each other.
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

    /// As wide as it is: a line that is broken cannot be searched for.
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
