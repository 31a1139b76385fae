//! Calls of producers that share script calls: nobody sees of it but that they are fewer.
//!
//! Each call has its own answer, its own patience and its own end, and those about one key happen in the order in
//! which they were made. [`scene`] has the line on which calls are held up, so that others gather behind them.

mod caller;
mod dropped;
mod late;
mod lone;
mod many;
mod order;
mod patience;
mod refusals;
mod replies;

mod runtimes;
mod scene;
