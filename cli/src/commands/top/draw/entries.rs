//! A topic's entries in one state.

use keylapse_console::{EntryState, text};

use super::grid::{Cell, Column, Grid};
use super::words::{LONGEST, relative};
use crate::commands::top::app::Entries;
use crate::commands::top::model::{EntryPage, EntryRow};
use crate::output::{counted, moment, short, size};

/// Bytes of a key that are shown.
const KEY: usize = 200;

pub(super) fn grid(rows: &[EntryRow], state: EntryState, now_ms: u64) -> Grid {
    let rows = rows.iter().map(|entry| (false, row(entry, state, now_ms))).collect();
    Grid { columns: columns(state), rows }
}

fn columns(state: EntryState) -> Vec<Column> {
    let when = match state {
        EntryState::Running => "LEASE ENDS",
        EntryState::Dead => "DIED",
        EntryState::Enrolled => "EXPIRES",
        _ => "DUE",
    };
    let mut columns = vec![Column::text("KEY", 0, 24), Column::word(when, 1)];
    columns.push(Column::word("AT", 7));
    match state {
        EntryState::Enrolled => return columns,
        EntryState::Dead => {
            columns.push(Column::word("REASON", 2));
            columns.push(Column::number("ATTEMPTS", 4));
        }
        _ => columns.push(Column::number("ATTEMPT", 3)),
    }
    columns.push(Column::number("LOST", if state == EntryState::Quarantined { 2 } else { 6 }));
    columns.push(Column::number("PAYLOAD", 8));
    columns.push(Column::text("LAST ERROR", 5, 24));
    columns
}

fn row(entry: &EntryRow, state: EntryState, now_ms: u64) -> Vec<Cell> {
    let mut cells = vec![Cell::plain(key(&entry.key)), Cell::plain(relative(entry.at_ms, now_ms))];
    cells.push(Cell::plain(moment(entry.at_ms)));
    if state == EntryState::Enrolled {
        return cells;
    }
    if state == EntryState::Dead {
        cells.push(Cell::plain(entry.reason));
    }
    cells.push(Cell::number(entry.attempt.to_string()));
    cells.push(Cell::number(entry.lost.to_string()));
    cells.push(Cell::plain(size(entry.bytes)));
    cells.push(Cell::plain(short(&entry.error, LONGEST)));
    cells
}

/// A key as it is shown.
pub(super) fn key(key: &[u8]) -> String {
    let head = &key[..key.len().min(KEY)];
    let cut = if head.len() < key.len() { "…" } else { "" };
    format!("{}{cut}", text::escape(head))
}

/// What stands in the place of entries where there are none.
pub(super) fn none(entries: &Entries, page: &EntryPage) -> String {
    let state = entries.state.0;
    let what = match state {
        EntryState::Dead => "dead letter".to_owned(),
        EntryState::Enrolled => "enrolled key".to_owned(),
        _ => format!("{} timer", state.as_str()),
    };
    match (entries.filter.is_empty(), &page.next) {
        (true, _) => format!("No {what}s."),
        (false, None) => format!("No {what}s that match {}.", short(&entries.filter, KEY)),
        (false, Some(_)) => {
            let looked_at = counted(page.looked_at as u64, &what);
            format!("{looked_at} looked at, and none matches; n looks at those behind.")
        }
    }
}
