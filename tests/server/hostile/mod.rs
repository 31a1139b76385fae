//! What bad input gets: from producers, from other programs on the same server,
//! and from the server itself.

mod keys;
mod scene;
