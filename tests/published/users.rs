//! Programs of users, built outside of the workspace, with the features and versions that they may have.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use keylapse_support::Server;
use tempfile::TempDir;

use crate::REPOSITORY;
use crate::cargo::{cargo, run};

/// A program that depends on keylapse, and has no lock file of ours.
struct Program(TempDir);

impl Program {
    /// With these lines of dependencies; none where nothing can be fetched.
    fn with(dependencies: &str) -> Option<Self> {
        if env::var("OFFLINE").is_ok_and(|offline| offline == "1") {
            eprintln!("skipped: crates that this workspace does not have are fetched");
            return None;
        }
        let program = Self(tempfile::tempdir().expect("a folder"));
        let head = "[workspace]\n[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n";
        fs::create_dir(program.0.path().join("src")).expect("a folder");
        fs::write(program.0.path().join("Cargo.toml"), format!("{head}{dependencies}\n"))
            .expect("a manifest");
        fs::write(program.0.path().join("src/main.rs"), "pub use keylapse::Topic;\nfn main() {}\n")
            .expect("a program");
        Some(program)
    }

    /// Has cargo check it. All programs share a folder of what was built.
    fn check(&self) {
        self.cargo(&["check"]);
    }

    fn cargo(&self, arguments: &[&str]) {
        let mut command = cargo();
        command.args(arguments).env("CARGO_TARGET_DIR", target());
        command.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        if arguments.contains(&"-Z") {
            // The choice of versions is not stable; what is compiled with them is.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        if let Err(said) = run(self.0.path(), &mut command) {
            let manifest = fs::read_to_string(self.0.path().join("Cargo.toml")).expect("it was written");
            panic!("{manifest}{arguments:?}: {said}");
        }
    }
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("users")
}

fn keylapse(features: &[&str]) -> String {
    format!("keylapse = {{ path = \"{REPOSITORY}\", features = {features:?} }}")
}

fn kit() -> String {
    format!("keylapse-testing = {{ path = \"{REPOSITORY}/crates/testing\" }}")
}

/// The public features, as the manifest has them.
fn features() -> Vec<String> {
    let manifest = fs::read_to_string(Path::new(REPOSITORY).join("Cargo.toml")).expect("the manifest");
    let (_, features) = manifest.split_once("\n[features]\n").expect("the features");
    let (features, _) = features.split_once("\n[").expect("their end");
    let names = features.lines().filter(|line| !line.starts_with('#'));
    names.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned()).collect()
}

/// Features of `redis` change its types, and a program's are ours, too.
#[test]
fn it_builds_beside_redis_with_its_default_features() {
    let Some(program) = Program::with(&format!("redis = \"1.8\"\n{}\n{}", keylapse(&[]), kit())) else {
        return;
    };
    program.check();
}

/// But those that need OpenSSL or another runtime, and the cloud's.
#[test]
fn it_builds_beside_redis_with_its_other_features() {
    let others = "acl aio bb8 bloom cache-aio cluster cluster-async connection-manager geospatial json num-bigint r2d2 script \
                  search_unfinished sentinel streams tls-rustls token-based-authentication tokio-comp tokio-rustls-comp vector-sets";
    let others: Vec<_> = others.split(' ').collect();
    let all = features();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let redis = format!("redis = {{ version = \"1.8\", features = {others:?} }}");
    let Some(program) = Program::with(&format!("{redis}\n{}\n{}", keylapse(&all), kit())) else { return };
    program.check();
}

#[test]
fn each_feature_builds_alone() {
    let features = features();
    assert!(features.len() >= 3, "{features:?}");
    for feature in &features {
        let Some(program) = Program::with(&keylapse(&[feature])) else { return };
        program.check();
    }
}

#[test]
fn it_builds_with_the_oldest_versions_that_it_asks_for() {
    let features = features();
    let features: Vec<_> = features.iter().map(String::as_str).collect();
    let Some(program) = Program::with(&format!("{}\n{}", keylapse(&features), kit())) else { return };
    program.cargo(&["update", "-Z", "minimal-versions"]);
    program.check();
}

/// Only the places of the repository and of the server differ.
#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_the_readme_prints_what_the_page_shows() {
    let Some(program) = Program::with("") else { return };
    let readme = fs::read_to_string(Path::new(REPOSITORY).join("README.md")).expect("the page");
    let (_, quick_start) = readme.split_once("\n## Quick start in Rust\n").expect("the section");
    for command in quick_start.lines().filter_map(|line| line.strip_prefix("cargo add ")) {
        let command = command.replace("../keylapse", REPOSITORY);
        program.cargo(&["add"].into_iter().chain(command.split(' ')).collect::<Vec<_>>());
    }
    let server = Server::start().await;
    let (_, source) = quick_start.split_once("```rust,no_run\n").expect("a program");
    let source = source.split("```").next().expect("its end").replace("redis://127.0.0.1/", &server.url());
    fs::write(program.0.path().join("src/main.rs"), source).expect("a program");
    program.cargo(&["build"]);
    let (_, printed) = quick_start.split_once("`cargo run` prints `").expect("an output");
    let printed = printed.split('`').next().expect("its end");
    let running = keylapse_support::Program::talking(&mut Command::new(target().join("debug/user")));
    running.expect("it was built").says(printed).await;
}
