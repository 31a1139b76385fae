//! A run and its calculation, as they stand on the page.

use crate::Fault;
use crate::scale::{Goal, Record};

/// Both.
///
/// # Errors
/// If a figure is missing.
pub fn page(record: &Record, _goal: &Goal) -> Result<String, Fault> {
    Ok(format!("{record:#?}"))
}
