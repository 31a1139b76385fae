//! The program as a whole, on servers of the tests' own.

mod acting;
mod attaching;
mod bulk;
mod listening;
mod looking;
mod moving;
mod proving;
mod scale;
mod scene;
mod trouble;
