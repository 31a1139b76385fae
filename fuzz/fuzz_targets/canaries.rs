#![no_main]

#[path = "../../tests/fuzzing/canaries.rs"]
mod canaries;
#[path = "../../src/fuzzing/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| canaries::canaries(data));
