//! docs/dashboard.md, with the program as the page has it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use keylapse::{Schedule, Topic};
use keylapse_support::{Program, Server};
use tempfile::TempDir;

use super::alike::ADDRESS;
use super::{Stage, play};

struct Desk {
    server: Server,
    folder: TempDir,
    serving: Option<Program>,
    http: String,
}

impl Desk {
    async fn set_up() -> Self {
        let server = Server::start().await;
        let schedule = Schedule::connect(&server.url()).await.expect("a schedule");
        let unpaid = Topic::<u64>::named("unpaid", "order:unpaid:{id}").expect("a topic");
        let armed = schedule.arm(&unpaid, "1001", Duration::from_secs(900), &1999).await;
        assert!(armed.expect("an arming").is_armed());
        let folder = tempfile::tempdir().expect("a folder");
        Self { server, folder, serving: None, http: String::new() }
    }
}

impl Stage for Desk {
    async fn play(&mut self, scene: &str) {
        assert_eq!(scene, "keylapse serve starts");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        serve.args(["serve", "--listen", "127.0.0.1:0"]).envs(self.variables());
        let serving = Program::logging(&mut serve).expect("the program");
        let said = serving.says("listening at").await;
        let (_, address) = said.split_once("listening at ").expect("an address");
        address.trim_end_matches('/').clone_into(&mut self.http);
        self.serving = Some(serving);
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
async fn each_command_of_the_page_of_the_dashboard_says_what_the_page_shows() {
    let commands = play("dashboard.md", &mut Desk::set_up().await).await;
    assert!(commands > 3, "{commands} commands");
}
