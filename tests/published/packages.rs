//! What a program gets that depends on keylapse: nothing that only tests need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::REPOSITORY;
use crate::cargo::run;

/// The packages that the library consists of, and those for tests and operators.
const PARTS: [&str; 6] = [
    "keylapse-pattern",
    "keylapse-connection",
    "keylapse-wire",
    "keylapse-testserver",
    "keylapse-testing",
    "keylapse-console",
];

/// The library, and the programs and crates that are made with it.
const WHOLES: [&str; 4] = ["keylapse", "keylapse-relay", "keylapse-web", "keylapse-cli"];

fn published() -> impl Iterator<Item = &'static str> {
    PARTS.into_iter().chain(WHOLES)
}

/// Runs a cargo command in the repository.
fn cargo(args: &[&str]) -> Result<String, String> {
    run(Path::new(REPOSITORY), crate::cargo::cargo().args(args))
}

/// One line for each crate of a package, and more where several need it.
fn tree(package: &str, edges: &str, args: &[&str]) -> Vec<String> {
    let tree = ["tree", "-p", package, "-e", edges, "--prefix", "none", "--offline"];
    let tree = cargo(&[&tree, args].concat()).unwrap();
    tree.lines().map(str::to_owned).collect()
}

/// The crates of a build, with their features.
fn crates(features: &[&str]) -> Vec<String> {
    crates_of("keylapse", features)
}

fn crates_of(package: &str, features: &[&str]) -> Vec<String> {
    tree(package, "normal,build", &[&["-f", "{p} {f}"], features].concat())
}

fn has(crates: &[String], name: &str) -> bool {
    crates.iter().any(|line| line.split(' ').next() == Some(name))
}

/// Whether tokio's clock can be paused.
fn has_paused_clock(crates: &[String]) -> bool {
    let features = |line: &String| line.rsplit(' ').next().unwrap_or_default().to_owned();
    crates.iter().filter(|line| line.starts_with("tokio ")).any(|line| features(line).contains("test-util"))
}

#[test]
fn a_production_build_has_no_server_no_lua_and_no_clock_that_stops() {
    for features in [["--no-default-features"].as_slice(), &[], &["--features", "metrics,tower"]] {
        let crates = crates(features);
        assert!(has(&crates, "keylapse") && has(&crates, "tokio"), "{crates:#?}");
        for unwanted in [
            "keylapse-testserver",
            "mlua",
            "mlua-sys",
            "keylapse-support",
            "proptest",
            "cc",
            "rustls",
            "ring",
        ] {
            assert!(!has(&crates, unwanted), "{features:?} brings {unwanted}");
        }
        assert!(!has_paused_clock(&crates), "{features:?} brings tokio's test-util");
    }
}

/// The crates of others that are compiled before anything runs: ours are in folders.
fn others(package: &str, edges: &str) -> BTreeSet<String> {
    let lines = tree(package, edges, &["-f", "{p}"]).into_iter();
    let names = lines.map(|line| line.trim_end_matches(" (*)").trim_end_matches(" (proc-macro)").to_owned());
    names.filter(|name| !name.is_empty() && !name.contains('/')).collect()
}

/// More than these make the first minute longer: see which came (`cargo tree`), and whether it can be done without.
#[test]
fn the_library_and_the_first_programs_bring_few_crates() {
    let library = others("keylapse", "normal,build");
    assert!((50..=88).contains(&library.len()), "{}: {library:#?}", library.len());
    let first = others("keylapse-examples", "normal,build,dev");
    assert!((60..=110).contains(&first.len()), "{}: {first:#?}", first.len());
    for heavy in ["axum", "reqwest", "rustls", "ring", "proptest", "icu_normalizer"] {
        assert!(!first.iter().any(|one| one.starts_with(&format!("{heavy} "))), "the examples bring {heavy}");
    }
}

/// One provider, and of the library that offers others as well none but that.
#[test]
fn tls_is_one_feature_with_one_provider() {
    let crates = crates(&["--features", "tls"]);
    assert!(has(&crates, "rustls") && has(&crates, "ring") && has(&crates, "rustls-native-certs"));
    for unwanted in ["aws-lc-rs", "aws-lc-sys", "openssl", "webpki-roots", "keylapse-testserver"] {
        assert!(!has(&crates, unwanted), "tls brings {unwanted}");
    }
}

#[test]
fn the_test_kit_brings_them() {
    let crates = crates_of("keylapse-testing", &[]);
    assert!(has(&crates, "keylapse-testserver") && has(&crates, "mlua") && has_paused_clock(&crates));
}

/// The files of a package, without those that cargo adds.
fn files(package: &str) -> Vec<String> {
    let list = cargo(&["package", "--list", "--allow-dirty", "--offline", "-p", package]).unwrap();
    let added = [".cargo_vcs_info.json", "Cargo.toml", "Cargo.toml.orig", "Cargo.lock"];
    list.lines().map(|line| line.replace('\\', "/")).filter(|line| !added.contains(&line.as_str())).collect()
}

#[test]
fn the_package_is_source_and_documents() {
    let root = Path::new(REPOSITORY);
    let files = files("keylapse");
    for file in &files {
        let top = file.split('/').next().unwrap_or_default();
        let page = !file.contains('/') && (file.ends_with(".md") || file.starts_with("LICENSE-"));
        assert!(page || ["src", "docs"].contains(&top), "{file} is packaged");
        let is_page = file.ends_with(".md") || file.starts_with("docs/dashboard/topics-");
        assert!(!file.starts_with("docs/") || is_page, "{file} is packaged");
    }
    // Scripts and the pages that the documentation includes are compiled.
    let wire = self::files("keylapse-wire");
    for script in root.join("crates/wire/src/scripts").read_dir().unwrap() {
        let name = script.unwrap().file_name().into_string().unwrap();
        assert!(wire.contains(&format!("src/scripts/{name}")), "{name} is missing");
    }
}

/// A registry shows README.md, and a package has each page and picture to which it links.
#[test]
fn the_package_has_each_file_that_its_readme_links_to() {
    let readme = std::fs::read_to_string(Path::new(REPOSITORY).join("README.md")).unwrap();
    let files = files("keylapse");
    let linked = crate::pages::links::links(&readme);
    assert!(linked.len() > 15, "{linked:?}");
    for link in linked {
        let file = link.split('#').next().unwrap_or_default();
        assert!(files.iter().any(|packaged| packaged == file), "{file} is missing");
    }
}

#[test]
fn the_packages_of_parts_are_their_sources() {
    for package in PARTS {
        for file in files(package) {
            let page = file == "README.md" || file.starts_with("LICENSE-");
            assert!(page || file.starts_with("src/"), "{file} of {package} is packaged");
        }
    }
}

/// Both licences ask that their text goes with each copy; registries show the README.
#[test]
fn each_package_has_its_licences_and_its_page() {
    for package in published() {
        let files = files(package);
        for needed in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
            assert!(files.iter().any(|file| file == needed), "{package}: {needed} is missing");
        }
    }
}

/// The manifests of the workspace, each with its folder.
fn manifests() -> Vec<(PathBuf, String)> {
    let root = Path::new(REPOSITORY);
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, members) = workspace.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let folders = members.split('"').skip(1).step_by(2).map(|member| root.join(member));
    folders
        .map(|folder| {
            let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            (folder, text)
        })
        .collect()
}

/// The value of a key of a manifest, whose line begins with it.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    manifest
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
        .map(|text| text.trim_matches('"'))
}

/// `make package` and `cargo publish --workspace` take each package that does not refuse it.
#[test]
fn the_packages_that_can_be_published_are_those() {
    let all = manifests();
    let open = all.iter().filter(|(_, manifest)| value(manifest, "publish") != Some("false"));
    let names: BTreeSet<_> = open.filter_map(|(_, manifest)| value(manifest, "name")).collect();
    assert_eq!(names, published().collect());
}

/// A program gets the parts that were tested together.
#[test]
fn parts_have_the_version_of_the_library_and_are_needed_in_that_alone() {
    let all = manifests();
    let of = |name: &str| all.iter().find(|(_, manifest)| value(manifest, "name") == Some(name)).unwrap();
    let version = value(&of("keylapse").1, "version").unwrap();
    for name in PARTS {
        let (folder, manifest) = of(name);
        assert_eq!(value(manifest, "version"), Some(version), "{name}");
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: {readme}");
    }
    let exactly = format!("version = \"={version}\"");
    for part in PARTS.into_iter().filter(|name| !["keylapse-testserver", "keylapse-testing"].contains(name)) {
        let of_users = all.iter().filter(|(_, manifest)| !manifest.contains("publish = false"));
        let needs = of_users.flat_map(|(_, manifest)| manifest.lines());
        let needs: Vec<_> = needs.filter(|line| line.starts_with(&format!("{part} = "))).collect();
        assert!(!needs.is_empty() && needs.iter().all(|need| need.contains(&exactly)), "{needs:#?}");
    }
}

/// `make package` builds them, too.
#[test]
fn all_packages_can_be_made() {
    let version = cargo(&["--version"]).unwrap();
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor < 90) {
        eprintln!("skipped: {} packages no two crates of which one needs the other", version.trim());
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let target = ["--target-dir", target.to_str().unwrap()];
    let packages = published().flat_map(|name| ["-p", name]);
    let package = ["package", "--no-verify", "--allow-dirty", "--offline"].into_iter().chain(packages);
    cargo(&package.chain(target).collect::<Vec<_>>()).unwrap();
}

/// The oldest Rust that Cargo.toml promises, where rustup has it.
#[test]
fn the_oldest_rust_builds_it() {
    let toolchain = concat!("+", env!("CARGO_PKG_RUST_VERSION"));
    let cargo = |args: &[&str]| {
        run(Path::new(REPOSITORY), Command::new("cargo").arg(toolchain).args(args).env_remove("RUSTC"))
    };
    if cargo(&["--version"]).is_err() {
        eprintln!("skipped: no toolchain {toolchain}");
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oldest");
    let target = ["--target-dir", target.to_str().unwrap()];
    for features in [["--no-default-features"].as_slice(), &["--features", "tls,tower"]] {
        cargo(&[["check", "-p", "keylapse", "--lib"].as_slice(), features, &target].concat()).unwrap();
    }
}
