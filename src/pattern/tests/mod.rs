//! By table where a case is worth naming, by property where the cases are many.

mod grammar;
mod matching;
mod oracle;
mod properties;
mod routing;

use super::Pattern;

/// A pattern that the test knows to be sound.
fn pattern(source: &str) -> Pattern {
    Pattern::new(source).unwrap_or_else(|error| panic!("{error}"))
}
