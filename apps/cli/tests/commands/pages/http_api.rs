//! docs/http-api.md, with the programs as the page has them.

use std::path::Path;
use std::process::Command;

use keylapse_support::{Program, Server, eventually};
use tempfile::TempDir;

use super::alike::ADDRESS;
use super::{Stage, play};
use crate::commands::scene::PATIENCE;

struct Desk {
    server: Server,
    folder: TempDir,
    programs: Vec<Program>,
    /// The address of the program that was started last.
    http: String,
}

impl Stage for Desk {
    async fn play(&mut self, scene: &str) {
        let arguments: &[&str] = match scene {
            "keylapse run listens" => &["run", "-c", "notices.toml", "--listen", "127.0.0.1:0"],
            "keylapse serve starts" => &["serve", "--listen", "127.0.0.1:0"],
            _ => panic!("{scene} is not played"),
        };
        let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        program.args(arguments).current_dir(self.folder.path()).envs(self.variables());
        let program = Program::logging(&mut program).expect("the program");
        let said = program.says("listening at").await;
        let (_, address) = said.split_once("listening at ").expect("an address");
        address.trim_end_matches('/').clone_into(&mut self.http);
        self.programs.push(program);
        eventually(PATIENCE, "the topic", async || self.sh("keylapse topics").0.contains("notices")).await;
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("KEYLAPSE_URL", self.server.url()), ("KEYLAPSE_HTTP", self.http.clone())]
    }

    fn as_shown(&self, text: &str) -> String {
        text.replace(&format!("127.0.0.1:{}", self.server.port()), ADDRESS)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_the_page_of_http_says_what_the_page_shows() {
    let (server, folder) = (Server::start().await, tempfile::tempdir().expect("a folder"));
    let mut desk = Desk { server, folder, programs: Vec::new(), http: String::new() };
    let commands = play("http-api.md", &mut desk).await;
    assert!(commands > 6, "{commands} commands");
}
