//! A server, a file, and the program that does what the file says.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use keylapse::{Schedule, Topic};
use keylapse_support::{Program, Server, eventually};
use tempfile::TempDir;

use crate::run::Heard;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) schedule: Schedule,
    folder: TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let server = Server::builder().config("notify-keyspace-events", "KExg$").start().await;
        let schedule = Schedule::connect(&*server.plain_url()).await.expect("the server is there");
        let scene = Self { server, schedule, folder: tempfile::tempdir().expect("a folder") };
        scene.write("secret", SECRET);
        scene
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.folder.path().join(name);
        fs::write(&file, text).expect("it is ours");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn show_everybody(&self, name: &str) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o644)).expect("it is ours");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.folder.path().join(name)).expect("it is there");
    }

    /// Due at once, all of these numbers.
    pub(crate) async fn arm(&self, numbers: impl Iterator<Item = usize>) {
        let topic = Topic::raw_named("orders", "order:{id}").expect("a topic");
        let payload = bytes::Bytes::from_static(b"1");
        let arm = |number: usize| {
            let (topic, payload) = (&topic, &payload);
            async move { self.schedule.arm(topic, [number.to_string()], Duration::ZERO, payload).await }
        };
        for armed in join_all(numbers.map(arm)).await {
            assert!(armed.expect("the server is there").is_armed());
        }
    }

    pub(crate) async fn none_left(&self) {
        eventually(PATIENCE, "nothing to be left", async || {
            self.server.cmd(&["HLEN", "keylapse:{orders/0}:timers"]).await == redis::Value::Int(0)
        })
        .await;
    }

    pub(crate) async fn dead(&self) -> usize {
        let dead = self.server.cmd(&["HLEN", "keylapse:{orders/0}:dead"]).await;
        redis::from_redis_value(dead).expect("a number")
    }

    pub(crate) fn run(&self) -> Program {
        self.start(&["run"])
    }

    /// The same, or `serve`, which listens, and where.
    pub(crate) async fn listening(&self, command: &str) -> (Program, String) {
        self.listening_with(&[command]).await
    }

    pub(crate) async fn listening_with(&self, words: &[&str]) -> (Program, String) {
        let program = self.start(&[words, &["--listen", "127.0.0.1:0"]].concat());
        let line = program.says("listening at").await;
        let (_, at) = line.split_once("http://").expect("an address");
        let at = at.trim_end().trim_end_matches('/').to_owned();
        (program, at)
    }

    fn start(&self, words: &[&str]) -> Program {
        let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        // As its file is called unless another is named.
        program.env("KEYLAPSE_URL", self.server.plain_url()).current_dir(self.folder.path()).args(words);
        Program::logging(&mut program).expect("the program")
    }
}

/// The answer there.
pub(crate) fn get(at: &str, path: &str) -> String {
    let mut line = TcpStream::connect(at).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    line.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    line.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The ids under which each key was delivered, one for each call.
pub(crate) fn ids_by_key(calls: &[Heard]) -> BTreeMap<String, Vec<String>> {
    let mut ids = BTreeMap::<_, Vec<_>>::new();
    for call in calls {
        let key = call.json()["data"]["key"].as_str().expect("a key").to_owned();
        ids.entry(key).or_default().push(call.id().to_owned());
    }
    ids
}
