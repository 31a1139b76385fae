//! Each public method that takes a size, a time or a text, tried with the smallest and the largest there are: it does
//! what it says, or refuses it in words, and comes back either way.

mod clients;
mod console;
mod kit;
mod producing;
mod topics;
mod values;
mod words;

use std::collections::BTreeSet;
use std::fs;

use keylapse::{Error, ErrorKind, Result};
use regex::Regex;

use super::ends;

/// Methods that are tried together, and what tries them.
type Case = (&'static [&'static str], fn());

const CASES: [&[Case]; 6] =
    [topics::CASES, clients::CASES, producing::CASES, console::CASES, words::CASES, kit::CASES];

/// Methods that need real servers.
const ELSEWHERE: [&str; 25] = [
    "testing::LocalCluster::begin_move",
    "testing::LocalCluster::move_slot",
    "testing::LocalCluster::move_slots_atomically",
    "testing::LocalCluster::owner_of_key",
    "testing::LocalCluster::owner_of_slot",
    "testing::LocalCluster::slot_of",
    "testing::LocalCluster::wait_for_owner_other_than",
    "testing::LocalNode::command",
    "testing::SlotMove::move_key",
    // Lines of a configuration, which the server reads.
    "testing::LocalClusterBuilder::announced_host",
    "testing::LocalClusterBuilder::binary",
    "testing::LocalClusterBuilder::config",
    "testing::LocalClusterBuilder::databases",
    "testing::LocalClusterBuilder::node_timeout",
    "testing::LocalClusterBuilder::notifications",
    "testing::LocalClusterBuilder::password",
    "testing::SentinelGroupBuilder::binary",
    "testing::SentinelGroupBuilder::config",
    "testing::SentinelGroupBuilder::down_after",
    "testing::SentinelGroupBuilder::failover_timeout",
    "testing::SentinelGroupBuilder::name",
    "testing::SentinelGroupBuilder::notifications",
    "testing::SentinelGroupBuilder::password",
    "testing::SentinelGroupBuilder::sentinel_config",
    "testing::SentinelGroupBuilder::sentinel_password",
];

/// Methods that take no value of a caller's, but a function.
const TOLD: [&str; 7] = [
    "timers::BulkRequest::for_each",
    "timers::BulkRequest::progress",
    // Written by a program, and called by a listener.
    "destinations::Destinations::try_now",
    "ListenerBuilder::trace",
    "console::TopicHandle::verify",
    "console::TailEvent::shown",
    "console::Rates::keep",
];

/// Tries all of them, each on a thread of its own, and says which have failed.
#[track_caller]
fn try_all(cases: &[Case]) {
    let failed = |(methods, case): &Case| Some(format!("{} {}", methods.join(", "), ends(*case).err()?));
    let failed: Vec<_> = cases.iter().filter_map(failed).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// In virtual time.
fn paused(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(test);
}

/// Takes any answer, or a refusal in words.
#[track_caller]
fn or_refused<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(error) => {
            refused_in_words(&error);
            None
        }
    }
}

#[track_caller]
fn refused_in_words(error: &Error) {
    use ErrorKind::{Conflict, Invalid, Payload, TooLarge, WireVersion};
    let text = error.to_string();
    assert!((10..4000).contains(&text.len()), "{} bytes: {text:.100}", text.len());
    assert!(!text.contains(char::is_control), "{text}");
    assert!(matches!(error.kind(), Conflict | Invalid | Payload | TooLarge | WireVersion), "{error:?}");
}

/// The methods of the published list that take a size, a time, a share or a text.
fn methods_with_values() -> BTreeSet<String> {
    let list = fs::read_to_string(format!("{}/tests/published/public-api.txt", crate::REPOSITORY)).unwrap();
    let line = Regex::new(r"(?m)^keylapse(?:::|_)(\S+) \| .*?\bfn \w+(.*)$").unwrap();
    let value = r"\b(Duration|SystemTime|When|[ui](8|16|32|64|128|size)|f(32|64)|str|String|PathBuf|Bytes|Display|KeyArgs|AsRef)\b";
    let value = Regex::new(value).unwrap();
    line.captures_iter(&list)
        .filter(|found| value.is_match(&parameters(&found[2])))
        .map(|found| found[1].to_owned())
        .collect()
}

/// Returns the text between a method's name and its result.
fn parameters(signature: &str) -> String {
    let mut depth = 0_i32;
    let end = signature.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (c == ')' && depth == 0).then_some(at + 1)
    });
    signature[..end.unwrap_or(signature.len())].to_owned()
}

#[test]
fn each_public_method_that_takes_a_size_a_time_or_a_text_is_tried() {
    let tried = CASES.iter().copied().flatten().flat_map(|(methods, _)| *methods);
    let known: BTreeSet<_> = tried.chain(&ELSEWHERE).chain(&TOLD).map(|name| (*name).to_owned()).collect();
    let published = methods_with_values();
    assert!(published.len() > 150, "{published:?}");
    let untried: Vec<_> = published.difference(&known).collect();
    assert!(untried.is_empty(), "try these with their extreme values, in tests/limits/methods: {untried:#?}");
    let gone: Vec<_> = known.difference(&published).collect();
    assert!(gone.is_empty(), "these take no such values, or are no more: {gone:#?}");
}

#[test]
fn settings_of_topics_hold_or_are_refused() {
    try_all(topics::CASES);
}

#[test]
fn clients_servers_and_listeners_take_all_values_or_refuse_them() {
    try_all(clients::CASES);
}

#[test]
fn calls_of_producers_take_all_values_or_refuse_them() {
    try_all(producing::CASES);
}

#[test]
fn calls_of_operators_take_all_values_or_refuse_them() {
    try_all(console::CASES);
}

#[test]
fn patterns_words_and_figures_take_all_values_or_refuse_them() {
    try_all(words::CASES);
}

#[test]
fn the_test_kit_takes_all_values_or_refuses_them() {
    try_all(kit::CASES);
}
