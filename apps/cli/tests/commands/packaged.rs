//! The files of packaging/: what they start is what the program understands, and the files that they give it are right.
//!
//! `make test-more SUITE=packaging` builds the image and runs it, where there is something that can.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use keylapse_support::{Program, Server, skipped};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(file(name)).expect(name)
}

fn keylapse() -> Command {
    Command::new(env!("CARGO_BIN_EXE_keylapse"))
}

/// Lists such as `["run", "-c", "…"]` behind this word, as JSON and YAML write them.
fn lists(text: &str, word: &str) -> Vec<Vec<String>> {
    let lists = text.lines().filter_map(|line| line.split_once(word)?.1.trim_start().split_once(']'));
    let lists = lists.filter(|(list, _)| list.starts_with('['));
    lists.map(|(list, _)| serde_json::from_str(&format!("{list}]")).expect(list)).collect()
}

/// The program understands this command line.
fn understands(arguments: &[String]) {
    // Help is given only where nothing before it is unknown.
    let ended = keylapse().args(arguments).arg("--help").output().expect("the program");
    assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// `keylapse run --check` has nothing against it.
fn is_fine(config: &str, folder: &Path) {
    fs::write(folder.join("keylapse.toml"), config).expect("a file");
    let mut check = keylapse();
    check.args(["run", "--check", "-c", "keylapse.toml"]).current_dir(folder).env("WEBHOOK_SECRET", SECRET);
    let ended = check.output().expect("the program");
    assert!(ended.status.success(), "{config}\n{}", String::from_utf8_lossy(&ended.stderr));
}

/// A folder with a secret.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, SECRET).expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("it is ours");
    folder
}

#[test]
fn the_compose_file_starts_what_there_is() {
    let text = read("compose.yaml");
    let ours = |list: &Vec<String>| list.first().is_some_and(|word| word == "run" || word == "serve");
    let commands: Vec<_> = lists(&text, "command:").into_iter().filter(ours).collect();
    assert_eq!(commands.len(), 2);
    commands.iter().for_each(|command| understands(command));
    let probes: Vec<_> = lists(&text, "test:").into_iter().filter(|list| list[1] == "/keylapse").collect();
    assert_eq!(probes.len(), 2);
    probes.iter().for_each(|probe| understands(&probe[2..]));
    is_fine(&read("keylapse.toml"), folder().path());
}

/// The example delivers the value that its page shows.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_the_compose_file_reaches_the_receiver_with_its_value() {
    let (server, folder) =
        (Server::builder().config("notify-keyspace-events", "KExg$").start().await, folder());
    let mut receiver = Command::new("python3");
    receiver.arg(file("receiver.py")).arg("0").current_dir(folder.path());
    let receiver = Program::talking(&mut receiver).expect("python3");
    let heard = receiver.says("listening at").await;
    let (_, address) = heard.split_once("listening at ").expect("its address");
    let config = read("keylapse.toml").replace("receiver:8000", address);
    let config = config.replace("allow-addresses = [", "allow-addresses = [\"127.0.0.1\", ");
    fs::write(folder.path().join("keylapse.toml"), config).expect("a file");
    let mut relay = keylapse();
    relay.arg("run").current_dir(folder.path()).env("WEBHOOK_SECRET", SECRET);
    let relay = Program::logging(relay.env("KEYLAPSE_URL", server.plain_url())).expect("the program");
    relay.says("attached keys: expiries and changes are received").await;
    let text = read("compose.yaml");
    let (_, order) = text.split_once("exec redis redis-cli ").expect("an order");
    let words = order.lines().next().expect("a line").split(' ').map(|word| word.trim_matches('\''));
    server.cmd(&words.collect::<Vec<_>>()).await;
    let told = receiver.says("order:unpaid:1 attempt 1").await;
    assert_eq!(told, r#"200 order:unpaid:1 attempt 1 {"cents": 1999}"#);
}

#[test]
fn the_manifest_starts_what_there_is() {
    let text = read("kubernetes.yaml");
    lists(&text, "args:").iter().for_each(|command| understands(command));
    let probes = lists(&text, "command:");
    assert_eq!(probes.len(), 2);
    probes.iter().for_each(|probe| understands(&probe[1..]));
    let (_, config) = text.split_once("keylapse.toml: |\n").expect("the file");
    let config: Vec<_> = config
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "))
        .map(str::trim_start)
        .collect();
    let folder = folder();
    let config = config.join("\n").replace("/run/secrets/keylapse/secret", "secret");
    assert!(config.contains("\nkeep-values = "), "orders come with their values");
    is_fine(&config, folder.path());
}

#[test]
fn the_unit_starts_what_there_is() {
    let unit = read("keylapse.service");
    let commands =
        unit.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once("=/usr/local/bin/keylapse "));
    let commands: Vec<Vec<_>> =
        commands.map(|(_, line)| line.split(' ').map(str::to_owned).collect()).collect();
    assert_eq!(commands.len(), 3);
    commands.iter().for_each(|command| understands(command));
}

#[test]
fn systemd_has_nothing_against_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        skipped("there is no systemd-analyze");
        return;
    }
    let folder = folder();
    let unit = read("keylapse.service").replace("/usr/local/bin/keylapse", env!("CARGO_BIN_EXE_keylapse"));
    let path = folder.path().join("keylapse.service");
    fs::write(&path, unit).expect("a file");
    let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("it runs");
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_it: Vec<_> = said.lines().filter(|line| line.contains("keylapse.service")).collect();
    assert!(about_it.is_empty(), "{about_it:#?}");
    let rated = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(&path)
        .output();
    let rated = rated.expect("it runs");
    assert!(rated.status.success(), "{}", String::from_utf8_lossy(&rated.stdout));
}

#[test]
fn the_image_has_no_more_than_the_program() {
    let text = read("Dockerfile");
    let (_, last) = text.rsplit_once("FROM ").expect("a stage");
    assert!(last.starts_with("scratch\n"));
    assert!(last.contains("\nUSER 65532:65532\n") && !last.contains("RUN"));
    assert_eq!(lists(&text, "ENTRYPOINT"), [["/keylapse"]]);
    let toolchain = text.split_once("library/rust:").expect("a toolchain").1;
    assert!(toolchain.starts_with("1."), "it is pinned");
}
