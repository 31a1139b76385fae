//! Tests of patterns: tables for single cases, and properties for random ones.

mod grammar;
mod matching;
mod properties;
mod routing;
mod strategies;

use crate::Pattern;

/// Compiles a valid pattern.
fn pattern(source: &str) -> Pattern {
    Pattern::new(source).unwrap_or_else(|error| panic!("{error}"))
}
