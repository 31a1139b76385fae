//! The fuzz targets: a function each, for one input.
//!
//! `fuzz/` calls them with a fuzzer. Without one, this suite replays the corpus through the same functions.

pub(crate) mod canaries;
#[cfg(test)]
mod corpus;
pub(crate) mod event_route;
mod grammar;
mod input;
pub(crate) mod matcher;
#[cfg(test)]
mod mutation;
#[path = "../../crates/pattern/src/oracle.rs"]
mod oracle;
pub(crate) mod pattern_parse;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod router;
pub(crate) mod topic_config;
pub(crate) mod url;

/// Whatever is said about hostile input is one line that no terminal obeys, of at most this length.
#[track_caller]
fn assert_fit_for_a_log(message: &str, limit: usize) {
    assert!(message.len() <= limit, "{} bytes: {message}", message.len());
    assert!(
        !message.contains(|c: char| c.is_control() || "\u{202e}\u{2028}\u{2029}".contains(c)),
        "{message:?}"
    );
}
