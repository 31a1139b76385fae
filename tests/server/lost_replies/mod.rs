//! The server executes a call, its reply is lost, and the caller repeats it.
//!
//! Each call of the store is made in this way, and then undisturbed: the repeat
//! must answer what the first call would have, and both must leave the same
//! behind in Redis. [`alone`] has a row for each case of each script,
//! [`meanwhile`] those in which somebody is quicker than the repeat; their few
//! exceptions say so. [`attached`] has the rows about keys that others write. [`api`] is about what applications see of it.

mod alone;
mod api;
mod attached;
mod call;
mod dump;
mod meanwhile;
mod random;
mod row;
mod step;
mod world;
