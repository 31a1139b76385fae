//! The same histories on this server and on every real server that there is, answer by answer: keylapse's
//! scripts and who may run them on each; single commands and Lua itself on Redis 7.0, as other versions answer
//! otherwise here and there.
//!
//! `KEYLAPSE_SERVER` and `KEYLAPSE_SERVERS` say which real servers; `TESTSERVER_CASES` how many histories
//! of each kind (a few, unless set), `TESTSERVER_SEED` the first seed.

mod commands;
mod lua;
mod pair;
mod random;
mod rights;
mod scripts;
mod vocabulary;
