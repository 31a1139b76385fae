//! docs/webhooks.md, with a receiver and the program as the page has them.

use std::path::Path;
use std::process::Command;

use keylapse_support::{Program, Server, eventually};
use tempfile::TempDir;

use super::alike::ADDRESS;
use super::{Stage, play};
use crate::commands::scene::PATIENCE;

/// As the page has it; another is free here.
const PORT: &str = ":8000";

/// Two programs beside a server.
struct Hooks {
    server: Server,
    folder: TempDir,
    receiver: Program,
    receiver_port: String,
    relay: Option<Program>,
    /// So many of the receiver's lines have been shown by blocks of the page.
    shown: usize,
}

impl Hooks {
    async fn set_up() -> Self {
        let server = Server::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/receiver.py");
        let mut receiver = Command::new("python3");
        receiver.arg(script).arg("0").current_dir(folder.path());
        let receiver = Program::talking(&mut receiver).expect("python3");
        let heard = receiver.says("listening at").await;
        let receiver_port = heard.rsplit_once(':').expect("its address").1.to_owned();
        Self { server, folder, receiver, receiver_port, relay: None, shown: 1 }
    }

    /// Waits until one of the receiver's lines has all of these words.
    async fn hear(&self, words: &str) {
        eventually(PATIENCE, words, async || {
            self.receiver.lines().iter().any(|line| words.split(' ').all(|word| line.contains(word)))
        })
        .await;
    }
}

impl Stage for Hooks {
    async fn play(&mut self, scene: &str) {
        match scene {
            "the receiver and the relay start" => {
                let mut relay = Command::new(env!("CARGO_BIN_EXE_keylapse"));
                relay.arg("run").current_dir(self.folder.path()).envs(self.variables());
                let relay = Program::logging(&mut relay).expect("the program");
                relay.says("attached keys: expiries and changes are received").await;
                self.relay = Some(relay);
            }
            "order 1001 is delivered" => self.hear("200 1001").await,
            "order 1002 is dead" => {
                self.hear("500 1002 3").await;
                eventually(PATIENCE, "a dead letter", async || {
                    self.sh("keylapse --json ls unpaid --state dead").0.contains("1002")
                })
                .await;
            }
            "order 1002 is delivered" => self.hear("200 1002").await,
            _ => panic!("{scene} is not played"),
        }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("KEYLAPSE_URL", self.server.url())]
    }

    fn as_played(&self, file: &str) -> String {
        file.replace(PORT, &format!(":{}", self.receiver_port))
    }

    fn as_shown(&self, text: &str) -> String {
        text.replace(&format!("127.0.0.1:{}", self.server.port()), ADDRESS)
    }

    fn told(&mut self, name: &str) -> String {
        assert_eq!(name, "receiver");
        let lines = self.receiver.lines().split_off(self.shown);
        self.shown += lines.len();
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_the_page_of_webhooks_says_what_the_page_shows() {
    let mut hooks = Hooks::set_up().await;
    let commands = play("webhooks.md", &mut hooks).await;
    assert!(commands > 8, "{commands} commands");
}
