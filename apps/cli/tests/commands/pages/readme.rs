//! The quick start of README.md without containers, as it stands. The registry, ports and the server's address differ.

use std::path::Path;
use std::process::Command;

use keylapse_support::{Program, Server};

/// The port of the receiver on the page.
const PORT: &str = "8000";
const DASHBOARD: &str = "127.0.0.1:7117";

fn page() -> String {
    std::fs::read_to_string(super::path("../README.md")).expect("the page")
}

/// Returns the first block of this kind after these words.
fn block<'a>(page: &'a str, after: &str, kind: &str) -> &'a str {
    let (_, rest) = page.split_once(after).unwrap_or_else(|| panic!("README.md lacks: {after}"));
    let (_, rest) = rest.split_once(&format!("```{kind}\n")).expect("a block");
    rest.split("```").next().expect("its end")
}

/// Returns a shell that finds the program, the repository's files and the server.
fn shell(line: &str, folder: &Path, server: &Server, secret: &str) -> Command {
    let path = std::env::var("PATH").expect("a PATH");
    let program = Path::new(env!("CARGO_BIN_EXE_keylapse")).parent().expect("its folder");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line.replace("redis-cli", "redis-cli -u \"$KEYLAPSE_URL\"")]).current_dir(folder);
    shell.env("PATH", format!("{}:{path}", program.display()));
    shell.env("KEYLAPSE_URL", server.url()).env("WEBHOOK_SECRET", secret);
    shell
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_without_containers_delivers_a_call() {
    let (page, server) = (page(), Server::start().await);
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(super::path("../packaging"), folder.path().join("packaging")).expect("a link");
    let config = block(&page, "Without containers", "toml");
    let (mut secret, mut running, mut receiver) = (String::new(), Vec::new(), None);
    for line in block(&page, "Without containers", "sh").lines() {
        if let Some(rest) = line.strip_prefix("cargo install --locked --path ") {
            let package = rest.split(' ').next().unwrap_or_default();
            assert!(super::path("..").join(package).join("Cargo.toml").exists(), "{package}");
        } else if line.starts_with("export WEBHOOK_SECRET=") {
            let line = format!("{line}; printf %s \"$WEBHOOK_SECRET\"");
            let printed = shell(&line, folder.path(), &server, "").output().expect("a shell");
            secret = String::from_utf8(printed.stdout).expect("text");
        } else if line.contains("receiver.py") {
            let line = format!("exec {}", line.trim_end_matches(" &").replace(PORT, "0"));
            let started =
                Program::talking(&mut shell(&line, folder.path(), &server, &secret)).expect("python3");
            let port = started.says("listening at").await.rsplit_once(':').expect("its address").1.to_owned();
            let config = config.replace(&format!(":{PORT}"), &format!(":{port}"));
            std::fs::write(folder.path().join("keylapse.toml"), config).expect("a file");
            receiver = Some(started);
        } else if let Some(line) = line.strip_suffix(" &") {
            let line = line.replace("serve", "serve --listen 127.0.0.1:0");
            let mut command = shell(&format!("exec {line}"), folder.path(), &server, &secret);
            let program = Program::logging(&mut command).expect("the program");
            let ready = if line.contains("serve") { "listening at" } else { "keys: expiries and changes" };
            program.says(ready).await;
            running.push(program);
        } else {
            let ended = shell(line, folder.path(), &server, &secret).output().expect("a shell");
            assert!(ended.status.success(), "{line}: {}", String::from_utf8_lossy(&ended.stderr));
        }
    }
    assert_eq!(running.len(), 2, "`keylapse run` and `keylapse serve`");
    let printed = receiver.expect("a receiver").says("order:unpaid:1 attempt 1").await;
    assert!(page.contains(&format!("the receiver prints `{printed}`")), "{printed}");
}

#[test]
fn the_dashboard_is_where_the_readme_has_it() {
    let help = Command::new(env!("CARGO_BIN_EXE_keylapse")).args(["serve", "--help"]).output().expect("help");
    assert!(String::from_utf8_lossy(&help.stdout).contains(DASHBOARD), "the default address");
    assert!(page().contains(&format!("<http://{DASHBOARD}>")), "README.md");
}

/// The comment of the file has the lines that the README has.
#[test]
fn the_quick_start_with_containers_is_that_of_the_compose_file() {
    let compose = std::fs::read_to_string(super::path("../packaging/compose.yaml")).expect("the file");
    let page = page();
    let lines = block(&page, "Your application keeps writing", "sh").lines();
    let lines: Vec<_> = lines.map(|line| format!("#     {line}\n")).collect();
    assert!(lines.len() > 3, "{lines:?}");
    assert!(compose.contains(&lines.concat()), "packaging/compose.yaml lacks\n{}", lines.concat());
}
