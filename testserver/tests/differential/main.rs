//! The same histories on this server and on every real server that there is, answer by answer.
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
