//! The corpus of each target, replayed by an ordinary `cargo test`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Of `fuzz/`, the names in one folder without what comes after a dot.
fn names(folder: &str) -> BTreeSet<String> {
    let name = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    files(folder).iter().map(name).collect()
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn replay(name: &str, target: fn(&[u8])) {
    let inputs = files(&format!("corpus/{name}"));
    assert!(!inputs.is_empty());
    for input in inputs {
        println!("{}", input.display()); // shown when it fails
        target(&fs::read(&input).unwrap());
    }
}

macro_rules! replayed {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target), super::$target);
        })*

        #[test]
        fn no_target_is_forgotten() {
            let replayed = BTreeSet::from([$(stringify!($target).to_owned()),*]);
            assert_eq!(names("fuzz_targets"), replayed);
            assert_eq!(names("corpus"), replayed);
        }
    };
}

replayed! { event_route matcher pattern_parse record reply router topic_config url }
