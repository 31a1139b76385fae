//! The fuzz target that needs the test kit: its corpus, replayed and changed at random, as the library's unit tests do with
//! that of the others (`src/fuzzing`).

mod canaries;
#[path = "../../src/fuzzing/input.rs"]
mod input;
#[path = "../../src/fuzzing/mutation.rs"]
mod mutation;

use std::fs;

#[test]
fn canaries() {
    let corpus = fs::read_dir(format!("{}/fuzz/corpus/canaries", crate::REPOSITORY)).unwrap();
    let inputs: Vec<_> = corpus.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!inputs.is_empty());
    inputs.iter().for_each(|input| canaries::canaries(input));
    mutation::try_briefly(canaries::canaries, &inputs);
}
