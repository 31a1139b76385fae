//! What the fuzz targets of `fuzz/` do with one input: a function each.
//!
//! They stand here because they look at what is private, and because so an ordinary `cargo test`
//! replays the corpus through the same functions, without a fuzzer. Nothing of this is compiled
//! into the library that users get.

#[cfg(test)]
mod corpus;
mod event_route;
mod grammar;
mod input;
mod matcher;
#[cfg(test)]
mod mutation;
#[path = "../../crates/pattern/src/oracle.rs"]
mod oracle;
mod pattern_parse;
mod record;
mod reply;
mod router;
mod topic_config;
mod url;

pub use event_route::event_route;
pub use matcher::matcher;
pub use pattern_parse::pattern_parse;
pub use record::record;
pub use reply::reply;
pub use router::router;
pub use topic_config::topic_config;
pub use url::url;

/// Whatever is said about hostile input is one line that no terminal obeys, of at most this length.
#[track_caller]
fn assert_fit_for_a_log(message: &str, limit: usize) {
    assert!(message.len() <= limit, "{} bytes: {message}", message.len());
    assert!(
        !message.contains(|c: char| c.is_control() || "\u{202e}\u{2028}\u{2029}".contains(c)),
        "{message:?}"
    );
}
