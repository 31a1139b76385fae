//! The program as a whole, on servers of the tests' own.

mod acting;
mod advice;
mod attaching;
mod bulk;
mod documented;
mod listening;
mod looking;
mod moving;
mod packaged;
mod pages;
mod proving;
mod reaching;
mod scale;
mod scene;
mod serving;
mod trouble;
