//! Attached topics against real servers: keys that other programs write.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod agreed;
mod changes;
mod crowd;
mod deadlines;
mod fields;
mod flood;
mod forged;
mod gaps;
mod hash_fields;
mod keeping;
mod loads;
mod memory;
mod once;
mod order;
mod policies;
mod random;
mod recovery;
mod refreshing;
mod refusals;
mod rows;
mod scanning;
mod scene;
mod slice;
mod subscription;
mod survey;
mod trouble;
