//! What bad input gets: from producers, from other programs on the same server,
//! and from the server itself.

mod events;
mod keys;
mod panics;
mod payloads;
mod records;
mod scene;
mod settings;
mod wrong_types;
