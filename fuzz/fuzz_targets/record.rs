#![no_main]

#[allow(dead_code)] // of the other targets
#[path = "../../tests/fuzzing/mod.rs"]
mod fuzzing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::record::record(data));
