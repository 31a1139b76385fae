//! What the compiler says of a handler that cannot be one: our words are looked for, not its own.
//!
//! Each program in tests/published/wrong_handlers is given to `rustc` beside the library that was built for this test:
//! a tool that compares all that the compiler prints would fail with each new compiler, and one that runs
//! Cargo would build all dependencies again. `fits.rs` has to compile, so that no other program can fail for
//! the want of something else.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// A line of a program that names a part of what has to be said.
const SAYS: &str = "// says: ";

struct Compiler {
    deps: PathBuf,
    library: PathBuf,
}

impl Compiler {
    /// With the newest library that `fits.rs` compiles with: others may be of another compiler.
    fn find() -> Self {
        let test = std::env::current_exe().expect("this test");
        let deps = test.parent().expect("its directory").to_owned();
        let mut libraries: Vec<(SystemTime, PathBuf)> = (deps.read_dir().expect("the directory").flatten())
            .filter(|entry| is_library(&entry.path()))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        libraries.sort();
        let mut refused = String::new();
        for (_, library) in libraries.into_iter().rev() {
            let compiler = Self { deps: deps.clone(), library };
            let output = compiler.compile(&program("fits.rs"));
            if output.status.success() {
                return compiler;
            }
            refused = said(&output);
        }
        panic!("fits.rs does not compile: {refused}");
    }

    fn compile(&self, program: &Path) -> Output {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        Command::new(rustc)
            .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--color=never"])
            .arg("--extern")
            .arg(format!("keylapse={}", self.library.display()))
            .arg("-L")
            .arg(format!("dependency={}", self.deps.display()))
            .arg("--out-dir")
            .arg(env!("CARGO_TARGET_TMPDIR"))
            .arg(program)
            .output()
            .expect("rustc can be run")
    }
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("libkeylapse-") && name.ends_with(".rlib")
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wrong_handlers").join(name)
}

/// All that the compiler said. Whether it writes our types with their path is its own affair.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).replace("keylapse::", "")
}

#[test]
fn what_is_wrong_is_named() {
    let compiler = Compiler::find();
    let mut programs: Vec<_> = program("").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    programs.sort();
    programs.retain(|path| !path.ends_with("fits.rs"));
    assert!(programs.len() >= 8, "there is one for each mistake");
    for path in programs {
        let text = std::fs::read_to_string(&path).unwrap();
        let words: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(SAYS)).collect();
        assert!(!words.is_empty(), "{}: begin with a line `{SAYS}…`", path.display());
        let output = compiler.compile(&path);
        let said = said(&output);
        assert!(!output.status.success(), "{} compiles", path.display());
        for words in words {
            assert!(said.contains(words), "{}: `{words}` is not said:\n{said}", path.display());
        }
    }
}
