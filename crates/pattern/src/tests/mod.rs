//! By table where a case is worth naming, by property where the cases are many.

mod grammar;
mod matching;
mod properties;
mod routing;
mod strategies;

use crate::Pattern;

/// A pattern that the test knows to be sound.
fn pattern(source: &str) -> Pattern {
    Pattern::new(source).unwrap_or_else(|error| panic!("{error}"))
}
