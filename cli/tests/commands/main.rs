//! The program as a whole, on servers of the tests' own.

mod acting;
mod attaching;
mod bulk;
mod documented;
mod listening;
mod looking;
mod moving;
mod page;
mod proving;
mod reaching;
mod scale;
mod scene;
mod trouble;
