//! All servers, driven alike through random lives of a few timers.

mod call;
mod clients;
mod driver;
mod harness;
mod op;
mod oracle;
mod strategy;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use harness::Harness;

/// Enough for half a minute each; set `KEYLAPSE_CASES` for more.
const CASES: u32 = 250;

#[test]
fn servers_answer_alike_and_keep_their_promises() {
    play("machine", strategy::lives(), true);
}

/// Without promises: what broke cannot keep them. But no server may fail
/// or do otherwise than another.
#[test]
fn servers_treat_broken_data_alike() {
    play("broken", strategy::broken_lives(), false);
}

fn play(name: &str, lives: impl Strategy<Value = Vec<op::Step>>, promises: bool) {
    let cases = std::env::var("KEYLAPSE_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(CASES),
        max_shrink_iters: 3000,
        // What is found becomes a named case of `rules`.
        failure_persistence: None,
        ..Config::default()
    };
    let harness = std::cell::RefCell::new(Harness::open(name));
    let ran = TestRunner::new(config).run(&(strategy::letters(), lives), |(letters, steps)| {
        harness.borrow_mut().play(letters, &steps, promises).map_err(TestCaseError::fail)
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}
