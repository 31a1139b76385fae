//! The harness with tiny numbers, and the page of its figures.

mod scale;
mod smoke;
