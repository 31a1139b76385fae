//! The corpus of each target, replayed by an ordinary `cargo test`, and changed at random for a moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::fuzzing::mutation::try_briefly;

/// Of `fuzz/`, the names in one folder without what comes after a dot.
fn names(folder: &str) -> BTreeSet<String> {
    let name = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    files(folder).iter().map(name).collect()
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(crate::REPOSITORY).join("fuzz").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn replay(name: &str, target: fn(&[u8])) {
    let files = files(&format!("corpus/{name}"));
    assert!(!files.is_empty());
    let inputs: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (file, input) in files.iter().zip(&inputs) {
        println!("{}", file.display()); // shown when it fails
        target(input);
    }
    try_briefly(target, &inputs);
}

macro_rules! replayed {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target), super::$target::$target);
        })*

        #[test]
        fn no_target_is_forgotten() {
            let replayed = BTreeSet::from([$(stringify!($target)),*].map(str::to_owned));
            assert_eq!(names("fuzz_targets"), replayed);
            assert_eq!(names("corpus"), replayed);
        }
    };
}

replayed! { canaries event_route matcher pattern_parse record reply router topic_config url }
