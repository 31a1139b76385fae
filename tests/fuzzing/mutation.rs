//! Hostile input without a fuzzer: the corpus, changed at random. It sees no coverage, so it finds less than
//! `make fuzz`; but it runs wherever `cargo test` does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How long each target is tried, unless `KEYLAPSE_FUZZ_SECONDS` says otherwise.
const BRIEFLY: Duration = Duration::from_millis(400);
/// Inputs that are tried however slow they are.
const AT_LEAST: usize = 20;
/// Bytes that mean something in patterns, keys, URLs, replies and records.
const TELLING: &[u8] = b"{}:*?[]\\/@%$.,-+0123456789\r\n\0\x01\x7f\x80\xff";

/// Tries a target with what becomes of these inputs. A panic is passed on, with the input that made it.
pub(super) fn try_briefly(target: fn(&[u8]), corpus: &[Vec<u8>]) {
    let seconds = std::env::var("KEYLAPSE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = seconds.map_or(BRIEFLY, Duration::from_secs_f64);
    let seed = rand::random();
    let (mut random, started, mut tried) = (StdRng::seed_from_u64(seed), Instant::now(), 0);
    while tried < AT_LEAST || started.elapsed() < limit {
        let input = mutated(&mut random, corpus);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            eprintln!("seed {seed}, input {tried}: {}", input.escape_ascii());
            resume_unwind(panic);
        }
        tried += 1;
    }
}

fn mutated(random: &mut StdRng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = any(random, corpus).to_vec();
    for _ in 0..random.random_range(1..5) {
        mutate(random, &mut input, corpus);
    }
    input
}

fn any<'a>(random: &mut StdRng, corpus: &'a [Vec<u8>]) -> &'a [u8] {
    &corpus[random.random_range(0..corpus.len())]
}

fn mutate(random: &mut StdRng, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = random.random_range(0..=input.len());
    let end = random.random_range(at..=input.len().min(at + 16));
    match random.random_range(0..6) {
        0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
        1 if at < input.len() => input[at] = telling(random),
        2 => input.insert(at, telling(random)),
        3 => drop(input.drain(at..end)),
        4 => {
            let again = input[at..end].to_vec();
            input.splice(at..at, again);
        }
        _ => {
            let other = any(random, corpus);
            let tail = &other[random.random_range(0..=other.len())..];
            input.truncate(at);
            input.extend_from_slice(tail);
        }
    }
}

fn telling(random: &mut StdRng) -> u8 {
    TELLING[random.random_range(0..TELLING.len())]
}

#[test]
#[should_panic(expected = "a brace")]
fn what_breaks_a_target_is_found() {
    try_briefly(|input| assert!(!input.contains(&b'}'), "a brace"), &[b"abc".to_vec()]);
}
